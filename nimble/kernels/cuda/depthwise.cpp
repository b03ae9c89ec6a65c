#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>

#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/launch.h"
#include "nimble/kernels/depthwise_source.h"
#include "nimble/kernels/into.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

bool has_kernel(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const bool one_type = weight.scalar_type() == x.scalar_type() &&
                        (!bias || (bias->scalar_type() == x.scalar_type() && bias->is_contiguous()));
  const bool one_filter_each = weight.dim() == 4 && weight.size(0) == x.size(1) && weight.size(1) == 1;
  return is_image_batch(x) && one_type && one_filter_each;
}

std::array<std::int64_t, 4> result_sizes(const at::Tensor& x, const Window& window) {
  return {x.size(0), x.size(1), window.rows_of(x.size(2)), window.columns_of(x.size(3))};
}

at::Tensor& depthwise_convolution_out_cuda(const at::Tensor& x, const at::Tensor& weight,
                                           const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                           at::IntArrayRef padding, at::IntArrayRef dilation,
                                           std::string_view before, std::string_view after,
                                           std::int64_t candidate, at::Tensor& out) {
  if (!has_kernel(x, weight, bias)) {
    return Into<depthwise_convolution>::call(x, weight, bias, stride, padding, dilation, before, after,
                                             candidate, out);
  }
  const auto guard = on_device_of(x);
  const Window window(weight.sizes().slice(2), stride, padding, dilation);
  expect_fits(out, result_sizes(x, window), x.scalar_type());
  const Depthwise convolution{.x = ImageLayout(x),
                              .y = ImageLayout(out),
                              .window = window,
                              .weight_channel = weight.stride(0),
                              .weight_row = weight.stride(2),
                              .weight_column = weight.stride(3),
                              .weight_first = address_in_elements(weight),
                              .dtype = x.scalar_type(),
                              .has_bias = bias.has_value(),
                              .before = before,
                              .after = after,
                              .candidate = candidate};
  const std::array<void*, 4> pointers = {address_of(x), address_of(weight),
                                         bias ? address_of(*bias) : nullptr, address_of(out)};
  launch(depthwise_source(convolution), pointers);
  return out;
}

at::Tensor depthwise_convolution_cuda(const at::Tensor& x, const at::Tensor& weight,
                                      const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                      at::IntArrayRef padding, at::IntArrayRef dilation,
                                      std::string_view before, std::string_view after,
                                      std::int64_t candidate) {
  if (!has_kernel(x, weight, bias)) {
    return depthwise_convolution(x, weight, bias, stride, padding, dilation, before, after, candidate);
  }
  at::Tensor y =
      empty_image_batch(x, result_sizes(x, Window(weight.sizes().slice(2), stride, padding, dilation)));
  return depthwise_convolution_out_cuda(x, weight, bias, stride, padding, dilation, before, after, candidate,
                                        y);
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) {
  library.impl("depthwise_convolution", depthwise_convolution_cuda);
  library.impl("depthwise_convolution.out", depthwise_convolution_out_cuda);
}

// Without memory they tell shapes, and which kernels they need.
TORCH_LIBRARY_IMPL(nimble, Meta, library) {
  library.impl("depthwise_convolution", depthwise_convolution_cuda);
  library.impl("depthwise_convolution.out", depthwise_convolution_out_cuda);
}

}  // namespace
}  // namespace nimble::kernels
