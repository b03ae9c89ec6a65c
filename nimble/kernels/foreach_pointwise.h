#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/foreach_source.h"

namespace nimble::kernels {

// The lists that a call of nimble::foreach_pointwise is given, `count` tensors each. Throws InvalidInput
// where they are not as many as the expression needs.
Lists lists_of_call(const Expression& expression, at::TensorList written, at::TensorList read,
                    std::int64_t count);

// What the operator means, in ATen's own.
std::vector<at::Tensor> foreach_pointwise(at::TensorList written, at::TensorList read,
                                          std::string_view expression, std::int64_t count);

}  // namespace nimble::kernels
