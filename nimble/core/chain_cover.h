#pragma once

#include <vector>

#include "nimble/core/task_graph.h"

namespace nimble {

// Cuts the graph into chains: every task is on exactly one, and each task of a chain happens before the next,
// though not always by an edge. Greedy: not always the fewest chains, but close on task graphs.
// Deterministic; O(tasks + edges).
std::vector<std::vector<TaskId>> greedy_chain_cover(const TaskGraph& graph);

}  // namespace nimble
