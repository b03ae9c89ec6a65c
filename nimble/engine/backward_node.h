#pragma once

#include "nimble/engine/entry.h"

namespace nimble {

// Results of a replayed forward pass become part of autograd's graph: whoever goes back from them replays the
// backward pass. Until that is done, or the graph is gone, the entry is lent (Entry::lend) to this graph.
void join_graph(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Tensors& outputs);

}  // namespace nimble
