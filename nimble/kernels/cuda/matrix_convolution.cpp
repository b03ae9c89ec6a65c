#include "nimble/kernels/cuda/matrix_convolution.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <torch/library.h>

#include <array>

#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/launch.h"
#include "nimble/kernels/into.h"
#include "nimble/kernels/matrix_source.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

using Optional = std::optional<at::Tensor>;

// Tensor cores multiply TF32, which single precision is taken apart into, since Ampere.
bool can_multiply(const at::Tensor& x) {
  if (x.is_cuda() && at::cuda::getDeviceProperties(x.device().index())->major < 8) return false;
  return x.scalar_type() != at::kFloat || at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
}

// Filters one after the other, in each the channels of a pixel beside each other, then columns, then rows.
bool is_rows_of_taps(const at::Tensor& weight) {
  return weight.dim() == 4 && weight.size(0) > 0 && weight[0].permute({1, 2, 0}).is_contiguous();
}

bool is_one_pixel(const at::Tensor& weight) { return weight.size(2) == 1 && weight.size(3) == 1; }

}  // namespace

bool has_matrix_kernel(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                       const Optional& residual, const Optional& filters, const Optional& filter_bias) {
  if (!is_image_batch(x) || !can_multiply(x)) return false;
  const auto same_type = [&](const Optional& tensor) {
    return !tensor || tensor->scalar_type() == x.scalar_type();
  };
  const auto whole = [](const Optional& tensor) { return !tensor || tensor->is_contiguous(); };
  const bool one_type = same_type(weight) && same_type(bias) && same_type(residual) && same_type(filters) &&
                        same_type(filter_bias);
  const bool is_product =
      is_rows_of_taps(weight) && weight.size(1) == x.size(1) && (!filters || is_one_pixel(weight));
  // Neighbouring channels beside each other, then columns, then rows.
  const bool packed = !filters || (filters->dim() == 4 && filters->size(0) == x.size(1) &&
                                   filters->size(1) == 1 && filters->permute({2, 3, 1, 0}).is_contiguous());
  return one_type && is_product && packed && whole(bias) && whole(filter_bias) &&
         ImageLayout(x).channels_fastest();
}

ImageLayout as_one_row(const at::Tensor& images) {
  ImageLayout x(images);
  const auto step = pixel_step(images);
  if (!step) return x;
  x.width *= x.height * x.images;
  x.height = x.images = 1;
  x.column_stride = *step;
  x.row_stride = x.image_stride = *step * x.width;
  return x;
}

namespace {

Window window_of(const at::Tensor& weight, const Optional& filters, at::IntArrayRef stride,
                 at::IntArrayRef padding, at::IntArrayRef dilation) {
  return {(filters ? *filters : weight).sizes().slice(2), stride, padding, dilation};
}

// It goes over each pixel and looks at nothing else.
bool is_of_one_pixel(const Window& w) {
  return w.height == 1 && w.width == 1 && w.stride_height == 1 && w.stride_width == 1 &&
         w.padding_height == 0 && w.padding_width == 0;
}

std::array<std::int64_t, 4> result_sizes(const at::Tensor& x, const at::Tensor& weight,
                                         const Window& window) {
  return {x.size(0), weight.size(0), window.rows_of(x.size(2)), window.columns_of(x.size(3))};
}

// What is added, as rows of a matrix: broadcast or laid out otherwise, it is brought into such a layout
// first.
at::Tensor as_rows(const at::Tensor& residual, at::IntArrayRef sizes) {
  if (residual.sizes() == sizes && pixel_step(residual)) return residual;
  return residual.expand(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor matrix_convolution_cuda(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                                   const Optional& residual, std::string_view activation,
                                   std::int64_t candidate, const Optional& filters,
                                   const Optional& filter_bias, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation, std::string_view before,
                                   std::string_view between, bool tf32);

at::Tensor& matrix_convolution_out_cuda(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                                        const Optional& residual, std::string_view activation,
                                        std::int64_t candidate, const Optional& filters,
                                        const Optional& filter_bias, at::IntArrayRef stride,
                                        at::IntArrayRef padding, at::IntArrayRef dilation,
                                        std::string_view before, std::string_view between, bool tf32,
                                        at::Tensor& out) {
  if (!has_matrix_kernel(x, weight, bias, residual, filters, filter_bias)) {
    return Into<matrix_convolution>::call(x, weight, bias, residual, activation, candidate, filters,
                                          filter_bias, stride, padding, dilation, before, between, tf32, out);
  }
  const auto y_step = out.dim() == 4 ? pixel_step(out) : std::nullopt;
  if (!y_step) {
    return Into<matrix_convolution_cuda>::call(x, weight, bias, residual, activation, candidate, filters,
                                               filter_bias, stride, padding, dilation, before, between, tf32,
                                               out);
  }
  const auto guard = on_device_of(x);
  const Window window = window_of(weight, filters, stride, padding, dilation);
  const auto sizes = result_sizes(x, weight, window);
  expect_fits(out, sizes, x.scalar_type());
  const Optional added = residual ? Optional(as_rows(*residual, sizes)) : std::nullopt;
  const ImageLayout pixels = !filters && is_of_one_pixel(window) ? as_one_row(x) : ImageLayout(x);
  const auto first = [](const Optional& tensor) {
    return tensor ? std::optional(address_in_elements(*tensor)) : std::nullopt;
  };
  const MatrixConvolution convolution{.x = pixels,
                                      .channels = weight.size(0),
                                      .out_height = window.rows_of(pixels.height),
                                      .out_width = window.columns_of(pixels.width),
                                      .weight_row = weight.stride(0),
                                      .y_step = *y_step,
                                      .residual_step = added ? *pixel_step(*added) : *y_step,
                                      .dtype = x.scalar_type(),
                                      .after = activation,
                                      .has_filters = filters.has_value(),
                                      .window = window,
                                      .before = before,
                                      .between = between,
                                      .tf32 = tf32,
                                      .weight_first = address_in_elements(weight),
                                      .y_first = address_in_elements(out),
                                      .bias_first = first(bias),
                                      .residual_first = first(added),
                                      .filters_first = first(filters),
                                      .filter_bias_first = first(filter_bias)};
  const auto pointer = [](const Optional& tensor) { return tensor ? address_of(*tensor) : nullptr; };
  const std::array<void*, 7> pointers = {address_of(x),  address_of(weight), pointer(bias),
                                         pointer(added), pointer(filters),   pointer(filter_bias),
                                         address_of(out)};
  launch(matrix_source(convolution, candidate), pointers);
  return out;
}

at::Tensor matrix_convolution_cuda(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                                   const Optional& residual, std::string_view activation,
                                   std::int64_t candidate, const Optional& filters,
                                   const Optional& filter_bias, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation, std::string_view before,
                                   std::string_view between, bool tf32) {
  if (!has_matrix_kernel(x, weight, bias, residual, filters, filter_bias)) {
    return matrix_convolution(x, weight, bias, residual, activation, candidate, filters, filter_bias, stride,
                              padding, dilation, before, between, tf32);
  }
  const auto guard = on_device_of(x);
  at::Tensor y = at::empty(result_sizes(x, weight, window_of(weight, filters, stride, padding, dilation)),
                           x.options().memory_format(at::MemoryFormat::ChannelsLast));
  return matrix_convolution_out_cuda(x, weight, bias, residual, activation, candidate, filters, filter_bias,
                                     stride, padding, dilation, before, between, tf32, y);
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) {
  library.impl("matrix_convolution", matrix_convolution_cuda);
  library.impl("matrix_convolution.out", matrix_convolution_out_cuda);
}

// Without memory they tell shapes, and which kernels they need.
TORCH_LIBRARY_IMPL(nimble, Meta, library) {
  library.impl("matrix_convolution", matrix_convolution_cuda);
  library.impl("matrix_convolution.out", matrix_convolution_out_cuda);
}

}  // namespace
}  // namespace nimble::kernels
