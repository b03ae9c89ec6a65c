#pragma once

#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// A task can be left out of a program, and its results be made ahead of time, if everything that it reads and
// writes is fixed. Given which buffers may be fixed at best, tells which are: each holds the same bytes
// whenever a task that stays looks at it.
std::vector<bool> fixed_buffers(const Program& program, std::vector<bool> at_best);

// Whether a task does nothing but make fixed buffers from fixed buffers.
bool is_fixed(const Task& task, const std::vector<bool>& fixed);

}  // namespace nimble
