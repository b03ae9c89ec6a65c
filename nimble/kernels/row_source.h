#pragma once

#include <ATen/core/Tensor.h>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// Whether one kernel can compute `expression`: steps of it are over rows (layer norms, softmaxes, reductions,
// over the last dimensions, of at most float32), the others are pointwise, of rows or of one number for each
// row, and all tensors lie in memory row by row. `steps` are what each step makes; types, sizes and strides
// are all that counts.
bool has_row_kernel(const Expression& expression, at::TensorList inputs, at::TensorList steps);

// That kernel, as in pointwise_source. It keeps the rows in registers and reads each input once. Of the two
// ways to divide a row among threads, `candidate` counts from the one that should be faster.
KernelSource row_source(const Expression& expression, at::TensorList inputs, at::TensorList steps,
                        at::TensorList results, std::int64_t candidate = 0);

}  // namespace nimble::kernels
