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

// oneDNN refuses bounds that cross or are no numbers.
std::optional<Activation> between(double least, double most) {
  return least <= most ? std::optional(Activation{"hardtanh", {least, most}}) : std::nullopt;
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
  if (name == "aten::hardtanh") return between(number(task, 1, 0), number(task, 2, 0));
  if (name == "aten::leaky_relu") return Activation{"leaky_relu", {number(task, 1, 0)}};
  if (name == "aten::gelu") return Activation{"gelu", {}, value_argument(task, 1).toStringRef()};
  if (name == "aten::clamp") {
    constexpr double kOpen = std::numeric_limits<double>::infinity();
    return between(number(task, 1, -kOpen), number(task, 2, kOpen));
  }
  return std::nullopt;
}

}  // namespace nimble
