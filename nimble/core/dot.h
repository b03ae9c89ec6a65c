#pragma once

#include <string>

#include "nimble/core/schedule.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// Graphviz source: one node for each task, coloured by stream. Solid arrows are the order within a stream,
// dashed ones are waits. The schedule must verify.
std::string to_dot(const TaskGraph& graph, const Schedule& schedule);

}  // namespace nimble
