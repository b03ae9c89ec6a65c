#include "nimble/torch/rewrites/activations.h"

#include <limits>
#include <string_view>
#include <unordered_map>

#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

double number(const Task& task, std::size_t argument, double otherwise) {
  const c10::IValue& value = value_argument(task, argument);
  return value.isNone() ? otherwise : value.toScalar().toDouble();
}

}  // namespace

std::optional<Activation> activation_of(const Task& task) {
  static const std::unordered_map<std::string_view, const char*> plain = {
      {"aten::relu", "relu"},           {"aten::sigmoid", "sigmoid"},         {"aten::tanh", "tanh"},
      {"aten::hardswish", "hardswish"}, {"aten::hardsigmoid", "hardsigmoid"}, {"aten::silu", "swish"},
  };
  const auto& [name, overload] = task.op.operator_name();
  if (!overload.empty()) return std::nullopt;  // it writes to a tensor that it was given, or takes tensors
  if (const auto found = plain.find(name); found != plain.end()) return Activation{found->second};
  if (name == "aten::hardtanh") return Activation{"hardtanh", {number(task, 1, 0), number(task, 2, 0)}};
  if (name == "aten::leaky_relu") return Activation{"leaky_relu", {number(task, 1, 0)}};
  if (name == "aten::gelu") return Activation{"gelu", {}, value_argument(task, 1).toStringRef()};
  if (name == "aten::clamp") {
    constexpr double kMost = std::numeric_limits<float>::max();
    return Activation{"hardtanh", {number(task, 1, -kMost), number(task, 2, kMost)}};
  }
  return std::nullopt;
}

}  // namespace nimble
