#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <tuple>

namespace nimble::kernels {

// What nimble::batch_norm_training and its way back mean, in ATen's operators: see schemas.cpp.
using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

FourTensors batch_norm_training(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                const std::optional<at::Tensor>& running_mean,
                                const std::optional<at::Tensor>& running_variance, double momentum,
                                double epsilon, const std::optional<at::Tensor>& residual,
                                std::string_view activation);

FourTensors batch_norm_training_backward(const at::Tensor& gradient, const at::Tensor& x,
                                         const at::Tensor& weight, const at::Tensor& bias,
                                         const at::Tensor& mean, const at::Tensor& inverse_deviation,
                                         std::string_view activation);

}  // namespace nimble::kernels
