#pragma once

#include <optional>

#include "nimble/torch/program.h"
#include "nimble/torch/record_error.h"

namespace nimble {

// Attention kernels return where they drew from, for their backward pass; without dropout they draw nothing
// and leave that memory as it was. A program that hands it to its caller would answer with whatever lies
// there, as eager does.
std::optional<Refusal> returns_unfilled_random_state(const Program& program);

// Their backward passes read that state to drop the same elements again: from host memory, but from the GPU's
// while a graph is captured. One that the same part of the program made is there then. One from outside, or
// from the forward pass of a compiled module, is not.
std::optional<Refusal> takes_random_state_from_elsewhere(const Program& program);

}  // namespace nimble
