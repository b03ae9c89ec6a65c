#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

namespace nimble::kernels {

// Whether our kernels for images handle this tensor: four dimensions, a floating type of up to 32 bits, not
// empty.
bool is_image_batch(const at::Tensor& x);

// Makes the device of `x` the current one; a tensor without memory is nowhere.
c10::cuda::OptionalCUDAGuard on_device_of(const at::Tensor& x);

// A result for `x`, as ATen would lay it out: channels_last where x is, contiguous otherwise.
at::Tensor empty_image_batch(const at::Tensor& x, std::int64_t channels, std::int64_t height,
                             std::int64_t width);

}  // namespace nimble::kernels
