#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace nimble {

// Questions about many tensors at once: a training step has thousands, and asking a GPU about each by itself
// takes longer than the step.

// Whether each of `a` has the same type, shape and bytes as its counterpart in `b`.
bool all_same_bits(std::span<const at::Tensor> a, std::span<const at::Tensor> b);

// By pair: the largest absolute difference of two elements; infinite where only one of two is a finite number
// (see distance). Undefined tensors, and those of integers, are no distance apart; pairs must look alike
// otherwise.
std::vector<double> distances(std::span<const at::Tensor> a, std::span<const at::Tensor> b);

// By tensor: the largest absolute value of a finite element.
std::vector<double> magnitudes(std::span<const at::Tensor> tensors);

}  // namespace nimble
