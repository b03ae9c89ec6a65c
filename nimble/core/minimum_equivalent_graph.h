#pragma once

#include "nimble/core/task_graph.h"

namespace nimble {

// The graph with the fewest edges that orders the same tasks: the transitive reduction, unique for a DAG.
// Tasks, names and costs are unchanged. The paper calls it E'.
TaskGraph minimum_equivalent_graph(const TaskGraph& graph);

}  // namespace nimble
