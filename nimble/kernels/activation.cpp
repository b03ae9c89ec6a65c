#include "nimble/kernels/activation.h"

#include <ATen/ATen.h>

#include <map>

#include "nimble/core/error.h"

namespace nimble::kernels {
namespace {

struct Functions {
  at::Tensor (*of)(const at::Tensor&);
  void (*in_place)(at::Tensor&);
};

const std::map<std::string_view, Functions>& activations() {
  using In = const at::Tensor&;
  using Changed = at::Tensor&;
  static const std::map<std::string_view, Functions> table = {
      {"none", {[](In x) { return x; }, [](Changed) {}}},
      {"relu", {[](In x) { return at::relu(x); }, [](Changed x) { at::relu_(x); }}},
      {"relu6", {[](In x) { return at::hardtanh(x, 0, 6); }, [](Changed x) { at::hardtanh_(x, 0, 6); }}},
      {"silu", {[](In x) { return at::silu(x); }, [](Changed x) { at::silu_(x); }}},
      {"hardswish", {[](In x) { return at::hardswish(x); }, [](Changed x) { at::hardswish_(x); }}},
      {"sigmoid", {[](In x) { return at::sigmoid(x); }, [](Changed x) { at::sigmoid_(x); }}},
      {"gelu", {[](In x) { return at::gelu(x); }, [](Changed x) { at::gelu_(x); }}},
      {"gelu_tanh", {[](In x) { return at::gelu(x, "tanh"); }, [](Changed x) { at::gelu_(x, "tanh"); }}},
  };
  return table;
}

const Functions& activation_named(std::string_view name) {
  if (!is_activation(name))
    throw InvalidInput("[nimble::kernels] there is no activation \"" + std::string(name) + "\"");
  return activations().at(name);
}

}  // namespace

bool is_activation(std::string_view name) { return activations().contains(name); }

at::Tensor activated(const at::Tensor& x, std::string_view name) { return activation_named(name).of(x); }

void activate(at::Tensor& x, std::string_view name) { activation_named(name).in_place(x); }

std::string device_function(std::string_view activation) {
  if (!is_activation(activation))
    throw InvalidInput("[nimble::kernels] there is no activation \"" + std::string(activation) + "\"");
  return activation == "none" ? "fn::identity" : "fn::" + std::string(activation);
}

}  // namespace nimble::kernels
