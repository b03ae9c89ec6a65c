#pragma once

#include <ATen/core/List.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <optional>

namespace nimble {

// Whether oneDNN has convolutions and products of this type on this processor, with what follows them in the
// same kernel. PyTorch refuses such calls elsewhere.
bool onednn_computes(at::ScalarType type);

// The numbers of an activation, as PyTorch's calls of oneDNN take them.
c10::List<std::optional<at::Scalar>> onednn_scalars(at::ArrayRef<double> numbers);

}  // namespace nimble
