#include "nimble/kernels/element_source.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

namespace nimble::kernels {
namespace {

// How a call of ATen's becomes a call of a device function. `arguments` are those that matter, in the order
// of the device function.
struct Emission {
  const char* function;
  std::vector<std::size_t> arguments;
  enum class In {
    kArithmetic,  // that of its result, widened: rounded once, at the end
    kMemory,      // that of its result as it lies in memory: every operation rounds, numbers are rounded too
    kOperands,    // the common type of what it compares, to which numbers are rounded
  } in = In::kArithmetic;      // the type that it is computed in
  bool by_reciprocal = false;  // of its number, which the host takes in double precision
};

const std::unordered_map<std::string_view, Emission>& emissions() {
  using enum Emission::In;
  static const std::unordered_map<std::string_view, Emission> table = {
      {"relu", {"relu", {0}}},
      {"relu6", {"relu6", {0}}},
      {"neg", {"neg", {0}}},
      {"sgn", {"sgn", {0}}},
      {"abs", {"abs", {0}}},
      {"exp", {"exp", {0}}},
      {"log", {"log", {0}}},
      {"log1p", {"log1p", {0}}},
      {"sqrt", {"sqrt", {0}}},
      {"rsqrt", {"rsqrt", {0}}},
      {"reciprocal", {"reciprocal", {0}}},
      {"erf", {"erf", {0}}},
      {"sin", {"sin", {0}}},
      {"cos", {"cos", {0}}},
      {"floor", {"floor", {0}}},
      {"ceil", {"ceil", {0}}},
      {"tanh", {"tanh", {0}}},
      {"sigmoid", {"sigmoid", {0}}},
      {"silu", {"silu", {0}}},
      {"hardsigmoid", {"hardsigmoid", {0}}},
      {"hardswish", {"hardswish", {0}}},
      {"leaky_relu", {"leaky_relu", {0, 1}}},
      {"hardtanh", {"clamp", {0, 1, 2}}},
      {"clamp", {"clamp", {0, 1, 2}}},
      {"clamp_min", {"clamp_min", {0, 1}}},
      {"clamp_max", {"clamp_max", {0, 1}}},
      {"clamp_min.Tensor", {"larger", {0, 1}}},
      {"clamp_max.Tensor", {"smaller", {0, 1}}},
      {"gelu", {"gelu", {0}}},
      {"add.Tensor", {"add", {0, 1, 2}}},
      {"add.Scalar", {"add", {0, 1, 2}}},
      {"sub.Tensor", {"sub", {0, 1, 2}}},
      {"sub.Scalar", {"sub", {0, 1, 2}}},
      {"rsub.Scalar", {"rsub", {0, 1, 2}}},
      {"mul.Tensor", {"mul", {0, 1}}},
      {"mul.Scalar", {"mul", {0, 1}}},
      {"div.Tensor", {"div", {0, 1}}},
      {"div.Scalar", {"div_by_number", {0, 1}}},
      {"maximum", {"larger", {0, 1}}},
      {"minimum", {"smaller", {0, 1}}},
      {"pow.Tensor_Scalar", {"pow", {0, 1}, kMemory}},
      {"pow.Tensor_Tensor", {"pow", {0, 1}, kMemory}},
      {"addcmul", {"addcmul", {0, 1, 2, 3}}},
      {"addcdiv", {"addcdiv", {0, 1, 2, 3}}},
      {"mse_loss", {"squared_difference", {0, 1}, kMemory}},
      {"smooth_l1_loss", {"smooth_l1", {0, 1, 3}}},
      {"huber_loss", {"huber", {0, 1, 3}}},
      {"eq.Tensor", {"eq", {0, 1}, kOperands}},
      {"eq.Scalar", {"eq", {0, 1}, kOperands}},
      {"ne.Tensor", {"ne", {0, 1}, kOperands}},
      {"ne.Scalar", {"ne", {0, 1}, kOperands}},
      {"lt.Tensor", {"lt", {0, 1}, kOperands}},
      {"lt.Scalar", {"lt", {0, 1}, kOperands}},
      {"le.Tensor", {"le", {0, 1}, kOperands}},
      {"le.Scalar", {"le", {0, 1}, kOperands}},
      {"gt.Tensor", {"gt", {0, 1}, kOperands}},
      {"gt.Scalar", {"gt", {0, 1}, kOperands}},
      {"ge.Tensor", {"ge", {0, 1}, kOperands}},
      {"ge.Scalar", {"ge", {0, 1}, kOperands}},
      {"_to_copy", {"identity", {0}}},
      {"clone", {"identity", {0}}},
      {"where.self", {"where", {0, 1, 2}}},
      {"masked_fill.Scalar", {"masked_fill", {0, 1, 2}}},
      {"threshold_backward", {"threshold_backward", {0, 1, 2}, kMemory}},
      {"hardtanh_backward", {"hardtanh_backward", {0, 1, 2, 3}}},
      {"sigmoid_backward", {"sigmoid_backward", {0, 1}, kMemory}},
      {"tanh_backward", {"tanh_backward", {0, 1}, kMemory}},
      {"silu_backward", {"silu_backward", {0, 1}}},
      {"gelu_backward", {"gelu_backward", {0, 1}}},
      {"hardsigmoid_backward", {"hardsigmoid_backward", {0, 1}}},
      {"hardswish_backward", {"hardswish_backward", {0, 1}}},
      {"leaky_relu_backward", {"leaky_relu_backward", {0, 1, 2}}},
      // Of lists of tensors, with kernels of their own in ATen.
      {"_foreach_neg", {"neg", {0}}},
      {"_foreach_sqrt", {"sqrt", {0}}},
      {"_foreach_reciprocal", {"reciprocal", {0}}},
      {"_foreach_add.List", {"add", {0, 1, 2}}},
      {"_foreach_add.Scalar", {"plus", {0, 1}}},
      {"_foreach_sub.List", {"sub", {0, 1, 2}}},
      {"_foreach_sub.Scalar", {"minus", {0, 1}}},
      {"_foreach_mul.List", {"mul", {0, 1}}},
      {"_foreach_mul.Scalar", {"mul", {0, 1}}},
      {"_foreach_div.List", {"div", {0, 1}}},
      {"_foreach_div.Scalar", {"mul", {0, 1}, kArithmetic, true}},
      {"_foreach_maximum.List", {"larger_or_second", {0, 1}}},
      {"_foreach_lerp.Scalar", {"lerp", {0, 1, 2}}},
      {"_foreach_addcmul.Scalar", {"addcmul", {0, 1, 2, 3}}},
      {"_foreach_addcdiv.Scalar", {"addcdiv", {0, 1, 2, 3}}},
  };
  return table;
}

bool is_number(const Argument& argument) {
  const auto* constant = std::get_if<c10::IValue>(&argument);
  return constant && (constant->isInt() || constant->isDouble() || constant->isBool());
}

// The emission of one call, which may depend on its constants.
Emission emission_of(const Step& step) {
  Emission emission = emissions().at(step.function);
  const auto is_by_tanh = [&](std::size_t argument) {
    return std::get<c10::IValue>(step.arguments.at(argument)).toStringRef() == "tanh";
  };
  if (step.function == "gelu" && is_by_tanh(1)) emission.function = "gelu_tanh";
  if (step.function == "gelu_backward" && is_by_tanh(2)) emission.function = "gelu_tanh_backward";
  if (step.function == "clamp" || step.function == "hardtanh") {  // either limit may be none
    if (!is_number(step.arguments.at(1))) return {"clamp_max", {0, 2}};
    if (!is_number(step.arguments.at(2))) return {"clamp_min", {0, 1}};
  }
  if (step.function == "pow.Tensor_Scalar") {  // ATen has kernels of their own for these
    const double exponent = std::get<c10::IValue>(step.arguments.at(1)).toScalar().toDouble();
    if (exponent == 2) return {"square", {0}};
    if (exponent == 3) return {"cube", {0}, Emission::In::kMemory};
    if (exponent == -2) return {"inverse_square", {0}, Emission::In::kMemory};
    if (exponent == 1) return {"identity", {0}};
    if (exponent == 0.5) return {"sqrt", {0}};
    if (exponent == -0.5) return {"rsqrt", {0}};
    if (exponent == -1) return {"reciprocal", {0}};
  }
  return emission;
}

}  // namespace

std::string literal(const c10::IValue& constant, std::string_view arithmetic) {
  std::string text;
  if (constant.isInt() || constant.isBool()) {
    text = std::to_string(constant.toScalar().toLong()) + "LL";
  } else {
    const double number = constant.toDouble();
    if (std::isnan(number)) {
      text = "__longlong_as_double(0x7ff8000000000000LL)";
    } else if (std::isinf(number)) {
      text = std::string(number < 0 ? "-" : "") + "__longlong_as_double(0x7ff0000000000000LL)";
    } else {
      char digits[64];
      std::snprintf(digits, sizeof digits, "%a", number);
      text = digits;
    }
  }
  return "static_cast<" + std::string(arithmetic) + ">(" + text + ")";
}

bool is_loss(const Step& step) {
  return step.function == "mse_loss" || step.function == "smooth_l1_loss" || step.function == "huber_loss";
}

namespace {

bool keeps_layout(const Argument& format) {
  const auto& given = std::get<c10::IValue>(format);
  return given.isNone() || given.toMemoryFormat() == c10::MemoryFormat::Preserve;
}

// A change to a floating type and of nothing else: not of the device, not of the layout.
bool is_cast(const Step& to_copy) {
  const auto constant = [&](std::size_t argument) {
    return std::get<c10::IValue>(to_copy.arguments.at(argument));
  };
  const c10::IValue type = constant(1);
  return type.isInt() && c10::isFloatingType(type.toScalarType()) && constant(2).isNone() &&
         constant(3).isNone() && constant(4).isNone() && keeps_layout(to_copy.arguments.at(6));
}

// Is no loss, or one that is not yet summed.
bool is_of_each_element(const Step& step) {
  return !is_loss(step) || std::get<c10::IValue>(step.arguments.at(2)).toInt() == at::Reduction::None;
}

}  // namespace

bool has_kernel(const Step& step) {
  if (!emissions().contains(step.function)) return false;
  if (step.function == "_to_copy" && !is_cast(step)) return false;
  if (step.function == "clone" && !keeps_layout(step.arguments.at(1))) return false;
  if (!is_of_each_element(step)) return false;
  const auto used = emission_of(step).arguments;
  return std::all_of(used.begin(), used.end(), [&](std::size_t i) {
    return std::holds_alternative<Value>(step.arguments.at(i)) || is_number(step.arguments[i]);
  });
}

FunctionCall function_call(const Step& step) {
  const Emission emission = emission_of(step);
  FunctionCall call{emission.function, {}};
  for (const std::size_t argument : emission.arguments) call.arguments.push_back(step.arguments[argument]);
  return call;
}

bool has_exact_kernel(const Step& step) {
  static const std::unordered_set<std::string_view> kRoundedOnce = {
      // Results are operands, or limits.
      "relu", "hardtanh", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "where.self",
      "masked_fill.Scalar", "threshold_backward", "hardtanh_backward",
      // Only the sign, or the type.
      "neg", "abs", "_to_copy",
      // One operation. Of a number ATen takes the reciprocal, on the host, as IEEE 754 rounds it.
      "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "mul.Tensor", "mul.Scalar", "div.Scalar",
      // True or false.
      "eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar", "lt.Tensor", "lt.Scalar", "le.Tensor", "le.Scalar",
      "gt.Tensor", "gt.Scalar", "ge.Tensor", "ge.Scalar"};
  if (!kRoundedOnce.contains(step.function) || !has_kernel(step)) return false;
  // A limit that is no number makes all results of ATen's so.
  const bool has_nan = std::ranges::any_of(step.arguments, [](const Argument& argument) {
    const auto* value = std::get_if<c10::IValue>(&argument);
    return value && value->isDouble() && std::isnan(value->toDouble());
  });
  if (has_nan) return false;
  const bool is_sum = step.function.starts_with("add.") || step.function.starts_with("sub.");
  // Times another factor than one it is two operations, and which of them round is the compiler's choice.
  return !is_sum || std::get<c10::IValue>(step.arguments.at(2)).toScalar().toDouble() == 1;
}

std::string ElementSource::type(const at::Tensor& tensor) {
  return std::string(device_type(tensor.scalar_type()));
}

std::string ElementSource::name(const Value& value) {
  return (value.kind == Value::Kind::kInput ? "a" : "t") + std::to_string(value.index);
}

const at::Tensor& ElementSource::tensor(const Value& value) const {
  return (value.kind == Value::Kind::kInput ? inputs_ : steps_)[value.index];
}

// Operands are brought to the type that ATen computes in, and the result is rounded as if it went to
// memory.
std::string ElementSource::step(std::size_t s) const {
  const Step& step = expression_.steps[s];
  const Emission emission = emission_of(step);
  const bool compares = emission.in == Emission::In::kOperands;
  const auto compute = compares ? common_type(step) : steps_[s].scalar_type();
  const std::string computed(device_type(compute)), wide = "arithmetic_t<" + computed + ">";
  const bool selects = step.function == "where.self" || step.function == "masked_fill.Scalar";
  std::string arguments;
  for (const std::size_t argument : emission.arguments) {
    if (!arguments.empty()) arguments += ", ";
    if (const auto* value = std::get_if<Value>(&step.arguments[argument])) {
      const auto given = tensor(*value).scalar_type();
      const bool as_is = given == compute || (selects && given == c10::kBool);
      arguments += as_is ? name(*value) : "as<" + computed + ">(" + name(*value) + ")";
    } else {
      c10::IValue number = std::get<c10::IValue>(step.arguments[argument]);
      if (emission.by_reciprocal) number = 1 / number.toScalar().toDouble();
      const std::string text = literal(number, wide);
      arguments += emission.in == Emission::In::kArithmetic ? text : "as<" + computed + ">(" + text + ")";
    }
  }
  return "const auto t" + std::to_string(s) + " = as<" + type(steps_[s]) + ">(fn::" + emission.function +
         "<" + (emission.in == Emission::In::kMemory ? computed : wide) + ">(" + arguments + "));\n";
}

// Of two operands that are compared, the second perhaps a number.
c10::ScalarType ElementSource::common_type(const Step& step) const {
  const at::Tensor& left = tensor(std::get<Value>(step.arguments[0]));
  if (is_number(step.arguments[1])) {
    return at::result_type(left, std::get<c10::IValue>(step.arguments[1]).toScalar());
  }
  return at::result_type(left, tensor(std::get<Value>(step.arguments[1])));
}

}  // namespace nimble::kernels
