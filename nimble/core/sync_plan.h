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

// The fewest waits that order every edge of the graph without ordering more tasks than the graph and the
// streams together do: a wait that follows from the order inside streams and from other waits is left out.
// Sorted by the launch order of `after`, then of `before`. With `maximum_concurrency` their number is |E'| -
// |M|, and no assignment that keeps all concurrency needs fewer.
//
// `streams` must be an assignment of this graph. Costs what one minimum equivalent graph costs. Throws
// InvalidInput if the launch order contradicts the graph.
std::vector<Wait> plan_syncs(const TaskGraph& graph, const StreamAssignment& streams);

}  // namespace nimble
