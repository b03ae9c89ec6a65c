#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// What a run left behind whose every floating-point tensor was a float64.
struct RunInDouble {
  std::vector<at::Tensor> results;
  std::unordered_map<const void*, at::Tensor> outside;  // by the storage in whose place it was

  // What is where `tensor`, an input or one outside, would have been changed, in the same shape. Undefined if
  // the program knows nothing of it.
  at::Tensor in_place_of(const at::Tensor& tensor) const;
};

// What a recorded program does with `inputs` if every floating-point tensor in it is a float64: a reference
// that shows how far eager's own rounding goes. Changes nothing outside. None where that cannot be done: a
// program that draws random numbers, looks at one buffer as two types, or has an operator that knows no
// float64. Takes as much memory as the program's tensors in that type.
std::optional<RunInDouble> run_in_double(const Program& program, std::span<const at::Tensor> inputs);

}  // namespace nimble
