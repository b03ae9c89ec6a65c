#pragma once

#include <cstddef>

#include "nimble/core/task_graph.h"

namespace nimble {

// The graph with the fewest edges that orders the same tasks: the transitive reduction, unique for a DAG.
// Tasks, names and costs are unchanged. The paper calls it E'.
//
// O(tasks + edges + kept edges * open / 64) time, where `open` is how many tasks have, at one point of the
// topological order, an edge still to come that skips a level: small for task graphs, even for those with
// many skips. Where the sets of ancestors do not fit into `most_bytes`, the graph is walked several times,
// each time for a part of them.
TaskGraph minimum_equivalent_graph(const TaskGraph& graph, std::size_t most_bytes = std::size_t{256} << 20);

}  // namespace nimble
