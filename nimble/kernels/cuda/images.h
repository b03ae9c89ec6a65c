#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include <optional>

namespace nimble::kernels {

// Whether our kernels for images handle this tensor: four dimensions, a floating type of up to 32 bits, not
// empty.
bool is_image_batch(const at::Tensor& x);

// Makes the device of `x` the current one; a tensor without memory is nowhere.
c10::cuda::OptionalCUDAGuard on_device_of(const at::Tensor& x);

// A result for `x`, as ATen would lay it out: channels_last where x is, contiguous otherwise.
at::Tensor empty_image_batch(const at::Tensor& x, at::IntArrayRef sizes);

// How far apart the pixels of [images, channels, height, width] lie, where all lie evenly apart and their
// channels are neighbours.
std::optional<std::int64_t> pixel_step(const at::Tensor& x);

}  // namespace nimble::kernels
