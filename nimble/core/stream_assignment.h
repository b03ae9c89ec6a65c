#pragma once

#include <cstddef>
#include <vector>

#include "nimble/core/task_graph.h"

namespace nimble {

// On which stream each task runs, and in which order they are launched. A stream runs its tasks in launch
// order.
struct StreamAssignment {
  std::vector<StreamId> stream_of;   // by task
  std::size_t stream_count = 0;      // streams are numbered by the launch order of their first task
  std::vector<TaskId> launch_order;  // a topological order of the graph
};

// All tasks on one stream, in the graph's topological order. O(tasks).
StreamAssignment single_stream(const TaskGraph& graph);

// The paper's assignment: the matched tasks of a maximum matching over the minimum equivalent graph share a
// stream. Any two tasks without a path between them land on different streams (maximum logical concurrency),
// and no assignment with that property needs fewer synchronisations. `reduced` must be a minimum equivalent
// graph. Takes tasks - |M| streams and the time of maximum_matching.
StreamAssignment maximum_concurrency(const TaskGraph& reduced);

// At most `limit` streams (>= 1), by list scheduling: the ready task with the longest remaining path goes to
// the stream on which it can start first, weighing what a synchronisation costs. Tasks without a cost count
// as 1 us. Opens no stream that saves no time. O((tasks + edges) * log(tasks)), whatever the limit. Throws
// InvalidInput for a limit of 0 or a negative cost.
StreamAssignment bounded_streams(const TaskGraph& graph, std::size_t limit, Nanoseconds sync_cost = 1000);

}  // namespace nimble
