#pragma once

#include <span>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// What a recorded program gives on `inputs` if every floating-point tensor in it is a float64: a reference
// that shows how far eager's own rounding goes. Changes nothing outside. Empty where that cannot be done: a
// program that draws random numbers, looks at one buffer as two types, or has an operator that knows no
// float64. Takes as much memory as the program's tensors in that type.
std::vector<at::Tensor> run_in_double(const Program& program, std::span<const at::Tensor> inputs);

}  // namespace nimble
