#include <ATen/ATen.h>
#include <ATen/native/Pool.h>
#include <torch/library.h>

#include <array>

#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/launch.h"
#include "nimble/kernels/into.h"
#include "nimble/kernels/pooling_source.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

void run(const Pooling& pooling, const at::Tensor& x, const at::Tensor& y) {
  const std::array<void*, 2> pointers = {address_of(x), address_of(y)};
  launch(pooling_source(pooling), pointers);
}

std::array<std::int64_t, 4> pooled_sizes(const at::Tensor& x, const Window& w, bool ceil_mode) {
  using at::native::pooling_output_shape;
  return {x.size(0), x.size(1),
          pooling_output_shape<std::int64_t>(x.size(2), w.height, w.padding_height, w.stride_height,
                                             w.dilation_height, ceil_mode),
          pooling_output_shape<std::int64_t>(x.size(3), w.width, w.padding_width, w.stride_width,
                                             w.dilation_width, ceil_mode)};
}

at::Tensor& max_pool2d_out_cuda(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode,
                                std::string_view activation, at::Tensor& out) {
  if (!is_image_batch(x)) {
    return Into<max_pool2d>::call(x, kernel_size, stride, padding, dilation, ceil_mode, activation, out);
  }
  const auto guard = on_device_of(x);
  const Window window(kernel_size, stride, padding, dilation);
  expect_fits(out, pooled_sizes(x, window, ceil_mode), x.scalar_type());
  run({.kind = Pooling::Kind::kMaximum,
       .x = ImageLayout(x),
       .y = ImageLayout(out),
       .window = window,
       .dtype = x.scalar_type(),
       .after = activation},
      x, out);
  return out;
}

at::Tensor max_pool2d_cuda(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                           at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode,
                           std::string_view activation) {
  if (!is_image_batch(x)) {
    return max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode, activation);
  }
  at::Tensor y =
      empty_image_batch(x, pooled_sizes(x, Window(kernel_size, stride, padding, dilation), ceil_mode));
  return max_pool2d_out_cuda(x, kernel_size, stride, padding, dilation, ceil_mode, activation, y);
}

at::Tensor& avg_pool2d_out_cuda(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                at::IntArrayRef padding, bool ceil_mode, bool count_include_pad,
                                std::optional<std::int64_t> divisor_override, std::string_view activation,
                                at::Tensor& out) {
  if (!is_image_batch(x)) {
    return Into<avg_pool2d>::call(x, kernel_size, stride, padding, ceil_mode, count_include_pad,
                                  divisor_override, activation, out);
  }
  const auto guard = on_device_of(x);
  const Window window(kernel_size, stride, padding, {});
  expect_fits(out, pooled_sizes(x, window, ceil_mode), x.scalar_type());
  run({.kind = Pooling::Kind::kAverage,
       .x = ImageLayout(x),
       .y = ImageLayout(out),
       .window = window,
       .dtype = x.scalar_type(),
       .count_include_pad = count_include_pad,
       .divisor_override = divisor_override,
       .after = activation},
      x, out);
  return out;
}

at::Tensor avg_pool2d_cuda(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                           at::IntArrayRef padding, bool ceil_mode, bool count_include_pad,
                           std::optional<std::int64_t> divisor_override, std::string_view activation) {
  if (!is_image_batch(x)) {
    return avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override,
                      activation);
  }
  at::Tensor y = empty_image_batch(x, pooled_sizes(x, Window(kernel_size, stride, padding, {}), ceil_mode));
  return avg_pool2d_out_cuda(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override,
                             activation, y);
}

at::Tensor adaptive_avg_pool2d_cuda(const at::Tensor& x, at::IntArrayRef output_size,
                                    std::string_view activation) {
  if (!is_image_batch(x)) return adaptive_avg_pool2d(x, output_size, activation);
  const auto guard = on_device_of(x);
  at::Tensor y = empty_image_batch(x, {x.size(0), x.size(1), output_size.front(), output_size.back()});
  run({.kind = Pooling::Kind::kAdaptiveAverage,
       .x = ImageLayout(x),
       .y = ImageLayout(y),
       .dtype = x.scalar_type(),
       .after = activation},
      x, y);
  return y;
}

void register_all(torch::Library& library) {
  library.impl("max_pool2d", max_pool2d_cuda);
  library.impl("max_pool2d.out", max_pool2d_out_cuda);
  library.impl("avg_pool2d", avg_pool2d_cuda);
  library.impl("avg_pool2d.out", avg_pool2d_out_cuda);
  library.impl("adaptive_avg_pool2d", adaptive_avg_pool2d_cuda);
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) { register_all(library); }

// Without memory they tell shapes, and which kernels they need.
TORCH_LIBRARY_IMPL(nimble, Meta, library) { register_all(library); }

}  // namespace
}  // namespace nimble::kernels
