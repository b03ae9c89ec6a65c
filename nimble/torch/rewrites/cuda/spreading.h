#pragma once

#include <optional>

#include "nimble/torch/tensor_ref.h"

namespace nimble {

// The shape in which `look` sees all elements of `made`, in their order, before it spreads them over others
// by broadcasting: [4, 1], of the means of four rows, unsqueezed and expanded to [4, 6]. None where it looks
// at something else.
std::optional<at::DimVector> shape_before_spreading(const TensorRef& made, TensorRef look);

}  // namespace nimble
