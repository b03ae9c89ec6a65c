#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

namespace nimble::kernels {

// What the operators mean, in ATen's own: this is what they do on every device that has no kernel of theirs,
// and what their kernels are tested against.

std::vector<at::Tensor> pointwise(at::TensorList inputs, std::string_view expression);
void pointwise_out(at::TensorList inputs, std::string_view expression, at::TensorList out);

std::vector<at::Tensor> rows(at::TensorList inputs, std::string_view expression, std::int64_t candidate);

at::Tensor depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                 at::IntArrayRef padding, at::IntArrayRef dilation,
                                 std::string_view activation_before, std::string_view activation_after,
                                 std::int64_t candidate = 0);

at::Tensor max_pool2d(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                      at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode,
                      std::string_view activation);
at::Tensor avg_pool2d(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                      at::IntArrayRef padding, bool ceil_mode, bool count_include_pad,
                      std::optional<std::int64_t> divisor_override, std::string_view activation);
at::Tensor adaptive_avg_pool2d(const at::Tensor& x, at::IntArrayRef output_size, std::string_view activation);

at::Tensor pointwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias,
                                 const std::optional<at::Tensor>& residual, std::string_view activation,
                                 std::int64_t candidate);

at::Tensor fused_convolution(const at::Tensor& x, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& residual,
                             at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                             std::int64_t groups, std::string_view activation, std::int64_t candidate);
at::Tensor matrix_convolution(const at::Tensor& x, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias,
                              const std::optional<at::Tensor>& residual, std::string_view activation,
                              std::int64_t candidate, const std::optional<at::Tensor>& filters,
                              const std::optional<at::Tensor>& filter_bias, at::IntArrayRef stride,
                              at::IntArrayRef padding, at::IntArrayRef dilation,
                              std::string_view activation_before, std::string_view activation_between,
                              bool tf32);
std::vector<at::Tensor> matrix_convolutions(const at::Tensor& x, at::TensorList weights,
                                            at::TensorList biases, std::string_view activation,
                                            std::int64_t candidate, bool tf32);
void matrix_convolutions_out(const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                             std::string_view activation, std::int64_t candidate, bool tf32,
                             at::TensorList out);

}  // namespace nimble::kernels
