#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace nimble::kernels {

// What a kernel can do to its input or its result on the way: "none", "relu", "relu6", "silu", "hardswish",
// "sigmoid", "gelu" (by erf), "gelu_tanh".
bool is_activation(std::string_view name);

// The same through ATen. Throws InvalidInput for a name that is none of these.
at::Tensor activated(const at::Tensor& x, std::string_view name);
void activate(at::Tensor& x, std::string_view name);  // in place

// "fn::relu", the device function.
std::string device_function(std::string_view activation);

}  // namespace nimble::kernels
