#pragma once

#include <string>
#include <string_view>

#include "nimble/core/schedule.h"
#include "nimble/core/simulate.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// A simulated timeline as a picture: a row for each stream, a box for each task (hover for its name and
// times), an arrow for each wait. Follows the reader's light or dark colour scheme.
std::string to_svg(const TaskGraph& graph, const Schedule& schedule, const Simulation& timeline,
                   std::string_view title = "");

}  // namespace nimble
