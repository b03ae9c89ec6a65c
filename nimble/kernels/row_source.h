#pragma once

#include <ATen/core/Tensor.h>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// Whether one kernel can compute `expression`: one step of it is over rows (a layer norm or a softmax, over
// the last dimensions, of at most float32), the others are pointwise, and all tensors lie in memory row by
// row. `steps` are what each step makes; types, sizes and strides are all that counts.
bool has_row_kernel(const Expression& expression, at::TensorList inputs, at::TensorList steps);

// That kernel, as in pointwise_source. It keeps the rows in registers and reads each input once. Of the two
// ways to divide a row among threads, `candidate` counts from the one that should be faster.
KernelSource row_source(const Expression& expression, at::TensorList inputs, at::TensorList steps,
                        at::TensorList results, std::int64_t candidate = 0);

}  // namespace nimble::kernels
