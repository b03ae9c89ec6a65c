#pragma once

#include <cstddef>
#include <vector>

#include "nimble/core/task_graph.h"

namespace nimble {

// A largest set of tasks no two of which are ordered, sorted by id: what can run side by side at most.
// Deterministic.
//
// By Dilworth's theorem it is as large as the smallest number of paths, which may share tasks, that cover the
// graph; the paths are found as a minimum flow. O(tasks + edges) memory; close to linear time on task graphs,
// where a greedy cover is nearly right. Faster on a minimum equivalent graph, with the same size of answer.
std::vector<TaskId> largest_antichain(const TaskGraph& graph);

// Its size: the graph's degree of concurrency.
std::size_t degree_of_concurrency(const TaskGraph& graph);

}  // namespace nimble
