#include "nimble/kernels/row_steps.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace nimble::kernels {
namespace {

// What the arguments of a call over rows mean.
struct RowCall {
  enum class Kind { kNorm, kSoftmax, kNumbers } kind;
  // Which of them has the dimensions, whether those stay, as ones, and the type of the result; those that are
  // missing say: all, no, the same.
  std::optional<std::size_t> dimensions = {}, keeps = {}, type = {};
};

const RowCall* row_call(const Step& step) {
  using enum RowCall::Kind;
  static const std::unordered_map<std::string_view, RowCall> table = {
      {"native_layer_norm", {kNorm, 1}},
      {"_fused_rms_norm", {kNorm, 1}},
      {"_softmax", {kSoftmax, 1, {}, 2}},
      {"_log_softmax", {kSoftmax, 1, {}, 2}},
      {"_safe_softmax", {kSoftmax, 1}},
      {"sum", {kNumbers, {}, {}, 1}},
      {"sum.dim_IntList", {kNumbers, 1, 2, 3}},
      {"mean", {kNumbers, {}, {}, 1}},
      {"mean.dim", {kNumbers, 1, 2, 3}},
      {"amax", {kNumbers, 1, 2}},
      {"amin", {kNumbers, 1, 2}},
      {"linalg_vector_norm", {kNumbers, 2, 3, 4}},
      {"norm.Scalar", {kNumbers}},
      {"norm.ScalarOpt_dim", {kNumbers, 2, 3}},
      {"norm.ScalarOpt_dim_dtype", {kNumbers, 2, 3, 4}},
  };
  const auto found = table.find(step.function);
  return found == table.end() ? nullptr : &found->second;
}

c10::IValue constant_at(const Step& step, std::optional<std::size_t> argument) {
  return argument ? std::get<c10::IValue>(step.arguments.at(*argument)) : c10::IValue();
}

// By dimension of `x`: whether the call looks over it.
std::vector<bool> looked_over(const Step& step, const at::Tensor& x) {
  const RowCall& call = *row_call(step);
  const auto count = static_cast<std::size_t>(x.dim());
  const c10::IValue given = constant_at(step, call.dimensions);
  if (call.kind == RowCall::Kind::kNorm) {
    std::vector<bool> over(count, false);
    std::fill_n(over.rbegin(), std::min(given.toIntList().size(), count), true);
    return over;
  }
  std::vector<std::int64_t> dimensions;
  if (given.isInt()) dimensions = {given.toInt()};
  if (given.isIntList()) dimensions = given.toIntVector();
  std::vector<bool> over(count, dimensions.empty());
  if (count == 0) return over;
  for (const std::int64_t dimension : dimensions) {
    over.at(static_cast<std::size_t>(dimension < 0 ? dimension + x.dim() : dimension)) = true;
  }
  return over;
}

c10::ScalarType result_type(const Step& step, const at::Tensor& x) {
  const c10::IValue type = constant_at(step, row_call(step)->type);
  if (type.isBool()) return type.toBool() ? c10::kFloat : x.scalar_type();  // a softmax that widens
  return type.isNone() ? x.scalar_type() : type.toScalarType();
}

}  // namespace

bool is_over_rows(const Step& step) { return row_call(step) != nullptr; }

bool gives_numbers(const Step& step) {
  const RowCall* call = row_call(step);
  return call && call->kind == RowCall::Kind::kNumbers;
}

std::size_t row_dimensions(const Step& step, const at::Tensor& x) {
  const auto over = looked_over(step, x);
  const auto begin = std::find(over.begin(), over.end(), true);
  const bool are_last = std::find(begin, over.end(), false) == over.end();
  return are_last ? static_cast<std::size_t>(over.end() - begin) : 0;
}

at::Tensor made_over_rows(const Step& step, const at::Tensor& x) {
  const auto options = x.options().dtype(result_type(step, x));
  if (!gives_numbers(step)) return at::empty(x.sizes(), options);
  const c10::IValue keeps = constant_at(step, row_call(step)->keeps);
  const auto over = looked_over(step, x);
  std::vector<std::int64_t> sizes;
  for (std::size_t d = 0; d < over.size(); ++d) {
    if (!over[d]) {
      sizes.push_back(x.sizes()[d]);
    } else if (keeps.isBool() && keeps.toBool()) {
      sizes.push_back(1);
    }
  }
  return at::empty(sizes, options);
}

std::string device_function(const Step& step) {
  static const std::unordered_map<std::string_view, std::string> table = {{"native_layer_norm", "LayerNorm"},
                                                                          {"_fused_rms_norm", "RmsNorm"},
                                                                          {"_softmax", "Softmax"},
                                                                          {"_log_softmax", "LogSoftmax"},
                                                                          {"_safe_softmax", "SafeSoftmax"},
                                                                          {"sum", "sum"},
                                                                          {"sum.dim_IntList", "sum"},
                                                                          {"mean", "mean"},
                                                                          {"mean.dim", "mean"},
                                                                          {"amax", "largest"},
                                                                          {"amin", "smallest"}};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (step.function == "linalg_vector_norm" || step.function.starts_with("norm.")) {
    const c10::IValue given = constant_at(step, 1);
    const double order = given.isNone() ? 2 : given.toScalar().toDouble();
    return order == 2           ? "norm"
           : order == 1         ? "sum_of_absolutes"
           : order == kInfinity ? "largest_absolute"
                                : "";
  }
  if (step.function == "_safe_softmax" && !constant_at(step, 2).isNone()) return "";  // of another type
  const auto found = table.find(step.function);
  return found == table.end() ? "" : found->second;
}

std::optional<c10::IValue> epsilon_of(const Step& step) {
  if (step.function == "native_layer_norm") return constant_at(step, 4);
  if (step.function != "_fused_rms_norm") return {};
  const auto given = constant_at(step, 3);
  return given.isNone() ? c10::IValue(double{std::numeric_limits<float>::epsilon()}) : given;
}

Affine affine_of(const Step& step) {
  const auto value_at = [&](std::size_t argument) -> std::optional<Value> {
    const auto* value = std::get_if<Value>(&step.arguments[argument]);
    return value ? std::optional(*value) : std::nullopt;
  };
  if (step.function == "native_layer_norm") return {value_at(2), value_at(3)};
  if (step.function == "_fused_rms_norm") return {value_at(2), {}};
  return {};
}

}  // namespace nimble::kernels
