#pragma once

#include <vector>

#include "nimble/core/stream_assignment.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// `after` waits, on its own stream, until `before` has finished on another.
struct Wait {
  TaskId before;
  TaskId after;
  friend auto operator<=>(const Wait&, const Wait&) = default;
};

// The fewest waits that, with the order inside each stream, order every edge of the graph; sorted by the
// launch order of `after`, then of `before`. With `maximum_concurrency` their number is |E'| - |M|.
std::vector<Wait> plan_syncs(const TaskGraph& graph, const StreamAssignment& streams);

}  // namespace nimble
