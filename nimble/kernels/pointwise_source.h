#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// Whether a generated kernel can do this call; otherwise it must not become a step of an expression.
bool has_kernel(const Step& step);

// The kernel that computes `expression`. The tensors tell types, sizes, strides and, where they have memory,
// how it is aligned; `steps` are what each step makes and `results` where the results go, all of one shape.
KernelSource pointwise_source(const Expression& expression, at::TensorList inputs, at::TensorList steps,
                              at::TensorList results);

}  // namespace nimble::kernels
