#pragma once

#include <string>

#include "nimble/core/schedule.h"
#include "nimble/core/simulate.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// A simulated timeline as Chrome trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing: a track
// for each stream, a slice for each task, an arrow for each wait.
std::string to_trace(const TaskGraph& graph, const Schedule& schedule, const Simulation& timeline);

}  // namespace nimble
