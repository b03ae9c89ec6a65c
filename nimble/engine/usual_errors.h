#pragma once

#include <span>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// How far from a run in float64 eager's results usually are, by result, as root of the mean square: measured
// on inputs that are a little different from the given ones. The errors of one run are of one mind, since
// what the first layers round goes through all others, so a single run may be many times nearer than usual.
// Empty where there is nothing to compare with (run_in_double), or no memory for it. Changes nothing outside.
std::vector<double> usual_errors(const Program& program, std::span<const at::Tensor> inputs);

}  // namespace nimble
