#pragma once

#include <optional>

#include "nimble/torch/program.h"
#include "nimble/torch/record_error.h"

namespace nimble {

// Attention kernels return where they drew from, for their backward pass; without dropout they draw nothing
// and leave that memory as it was. A program that hands it to its caller would answer with whatever lies
// there, as eager does.
std::optional<Refusal> returns_unfilled_random_state(const Program& program);

}  // namespace nimble
