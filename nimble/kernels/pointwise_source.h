#pragma once

#include <ATen/core/Tensor.h>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// The kernel that computes `expression`. The tensors tell types, sizes, strides and, where they have memory,
// how it is aligned; `steps` are what each step makes and `results` where the results go, all of one shape.
KernelSource pointwise_source(const Expression& expression, at::TensorList inputs, at::TensorList steps,
                              at::TensorList results);

}  // namespace nimble::kernels
