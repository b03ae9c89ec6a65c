#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "nimble/kernels/image_layout.h"

namespace nimble::kernels {

// Whether the kernel for products by tensor cores knows such a convolution; ATen does any other.
bool has_matrix_kernel(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       const std::optional<at::Tensor>& residual = {},
                       const std::optional<at::Tensor>& filters = {},
                       const std::optional<at::Tensor>& filter_bias = {});

// One row of pixels, where they lie so: then no block ends where a row does.
ImageLayout as_one_row(const at::Tensor& images);

}  // namespace nimble::kernels
