#include "nimble/kernels/references.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "nimble/kernels/activation.h"
#include "nimble/kernels/expression.h"
#include "nimble/kernels/into.h"

namespace nimble::kernels {

std::vector<at::Tensor> pointwise(at::TensorList inputs, std::string_view expression) {
  return evaluate(parse_expression(expression), inputs);
}

void pointwise_out(at::TensorList inputs, std::string_view expression, at::TensorList out) {
  copy_into(out, pointwise(inputs, expression));
}

std::vector<at::Tensor> rows(at::TensorList inputs, std::string_view expression, std::int64_t) {
  return evaluate(parse_expression(expression), inputs);
}

at::Tensor depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                 at::IntArrayRef padding, at::IntArrayRef dilation,
                                 std::string_view activation_before, std::string_view activation_after,
                                 std::int64_t) {
  return activated(at::conv2d(activated(x, activation_before), weight, bias, stride, padding, dilation,
                              /*groups=*/x.size(1)),
                   activation_after);
}

at::Tensor max_pool2d(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                      at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode,
                      std::string_view activation) {
  return activated(
      std::get<0>(at::max_pool2d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)),
      activation);
}

at::Tensor avg_pool2d(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                      at::IntArrayRef padding, bool ceil_mode, bool count_include_pad,
                      std::optional<std::int64_t> divisor_override, std::string_view activation) {
  return activated(
      at::avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
      activation);
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& x, at::IntArrayRef output_size,
                               std::string_view activation) {
  return activated(at::_adaptive_avg_pool2d(x, output_size), activation);
}

at::Tensor pointwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias,
                                 const std::optional<at::Tensor>& residual, std::string_view activation,
                                 std::int64_t) {
  const at::Tensor y = at::conv2d(x, weight, bias);
  return activated(residual ? at::add(y, *residual) : y, activation);
}

at::Tensor fused_convolution(const at::Tensor& x, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& residual,
                             at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                             std::int64_t groups, std::string_view activation, std::int64_t) {
  const at::Tensor y = at::conv2d(x, weight, bias, stride, padding, dilation, groups);
  return activated(residual ? at::add(y, *residual) : y, activation);
}

at::Tensor matrix_convolution(const at::Tensor& x, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias,
                              const std::optional<at::Tensor>& residual, std::string_view activation,
                              std::int64_t candidate, const std::optional<at::Tensor>& filters,
                              const std::optional<at::Tensor>& filter_bias, at::IntArrayRef stride,
                              at::IntArrayRef padding, at::IntArrayRef dilation,
                              std::string_view activation_before, std::string_view activation_between,
                              bool /*tf32*/) {
  if (!filters) {
    return fused_convolution(x, weight, bias, residual, stride, padding, dilation, /*groups=*/1, activation,
                             candidate);
  }
  const at::Tensor pixels = depthwise_convolution(x, *filters, filter_bias, stride, padding, dilation,
                                                  activation_before, activation_between);
  return pointwise_convolution(pixels, weight, bias, residual, activation, candidate);
}

std::vector<at::Tensor> matrix_convolutions(const at::Tensor& x, at::TensorList weights,
                                            at::TensorList biases, std::string_view activation,
                                            std::int64_t candidate, bool /*tf32*/) {
  if (!biases.empty()) expect_as_many(biases, weights.size());
  std::vector<at::Tensor> results;
  for (std::size_t n = 0; n < weights.size(); ++n) {
    const std::optional<at::Tensor> bias = biases.empty() ? std::nullopt : std::optional(biases[n]);
    results.push_back(pointwise_convolution(x, weights[n], bias, std::nullopt, activation, candidate));
  }
  return results;
}

void matrix_convolutions_out(const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                             std::string_view activation, std::int64_t candidate, bool tf32,
                             at::TensorList out) {
  copy_into(out, matrix_convolutions(x, weights, biases, activation, candidate, tf32));
}

namespace {

TORCH_LIBRARY_IMPL(nimble, CompositeExplicitAutograd, library) {
  library.impl("pointwise", pointwise);
  library.impl("pointwise_blocks", pointwise);
  library.impl("rows", rows);
  library.impl("depthwise_convolution", depthwise_convolution);
  library.impl("max_pool2d", max_pool2d);
  library.impl("avg_pool2d", avg_pool2d);
  library.impl("adaptive_avg_pool2d", adaptive_avg_pool2d);
  library.impl("pointwise_convolution", pointwise_convolution);
  library.impl("fused_convolution", fused_convolution);
  library.impl("matrix_convolution", matrix_convolution);
  library.impl("matrix_convolutions", matrix_convolutions);

  library.impl("pointwise.out", pointwise_out);
  library.impl("depthwise_convolution.out", Into<depthwise_convolution>::call);
  library.impl("max_pool2d.out", Into<max_pool2d>::call);
  library.impl("avg_pool2d.out", Into<avg_pool2d>::call);
  library.impl("pointwise_convolution.out", Into<pointwise_convolution>::call);
  library.impl("fused_convolution.out", Into<fused_convolution>::call);
  library.impl("matrix_convolution.out", Into<matrix_convolution>::call);
  library.impl("matrix_convolutions.out", matrix_convolutions_out);
}

}  // namespace
}  // namespace nimble::kernels
