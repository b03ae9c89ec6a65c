#pragma once

#include <optional>

#include "nimble/torch/program.h"
#include "nimble/torch/record_error.h"

namespace nimble {

// PyTorch's svdvals, eigvalsh and what is built on them compute vectors as well while anybody watches, and
// then their values round otherwise than eager's. Such a call shows as one whose vectors nobody looks at.
std::optional<Refusal> computes_unused_vectors(const Program& program);

}  // namespace nimble
