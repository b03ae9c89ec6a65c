#include "nimble/kernels/activation.h"

#include <ATen/ATen.h>

#include <map>

#include "nimble/core/error.h"

namespace nimble::kernels {
namespace {

using Function = at::Tensor (*)(const at::Tensor&);

const std::map<std::string_view, Function>& activations() {
  static const std::map<std::string_view, Function> table = {
      {"none", [](const at::Tensor& x) { return x; }},
      {"relu", [](const at::Tensor& x) { return at::relu(x); }},
      {"relu6", [](const at::Tensor& x) { return at::hardtanh(x, 0, 6); }},
      {"silu", [](const at::Tensor& x) { return at::silu(x); }},
      {"hardswish", [](const at::Tensor& x) { return at::hardswish(x); }},
      {"sigmoid", [](const at::Tensor& x) { return at::sigmoid(x); }},
      {"gelu", [](const at::Tensor& x) { return at::gelu(x); }},
      {"gelu_tanh", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
  };
  return table;
}

}  // namespace

bool is_activation(std::string_view name) { return activations().contains(name); }

at::Tensor activated(const at::Tensor& x, std::string_view name) {
  if (!is_activation(name))
    throw InvalidInput("[nimble::kernels] there is no activation \"" + std::string(name) + "\"");
  return activations().at(name)(x);
}

std::string device_function(std::string_view activation) {
  if (!is_activation(activation))
    throw InvalidInput("[nimble::kernels] there is no activation \"" + std::string(activation) + "\"");
  return activation == "none" ? "fn::identity" : "fn::" + std::string(activation);
}

}  // namespace nimble::kernels
