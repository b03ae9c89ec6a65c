#pragma once

#include <vector>

#include "nimble/core/simulate.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// The longest path through the graph, first task first: no schedule is shorter, whatever its streams. Of
// several such paths, the one through the smallest ids. Throws InvalidInput if times overflow. O(tasks +
// edges).
std::vector<TaskId> critical_path(const TaskGraph& graph, const Machine& machine = {});

// By task: the length of the longest path that goes through it. Of a task on the critical path it is that of
// the whole; any other may take as much longer as it falls short of that. Throws InvalidInput if times
// overflow. O(tasks + edges).
std::vector<Nanoseconds> longest_paths_through(const TaskGraph& graph, const Machine& machine = {});

}  // namespace nimble
