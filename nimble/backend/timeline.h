#pragma once

#include <vector>

#include "nimble/backend/executable.h"

namespace nimble {

// When a replay is timed task by task, it is done once to warm up and then this often.
inline constexpr std::size_t kTimedReplays = 7;

// Of several runs of one schedule, spans by task, the one of median length.
std::vector<TaskSpan> run_of_median_length(std::vector<std::vector<TaskSpan>> runs);

}  // namespace nimble
