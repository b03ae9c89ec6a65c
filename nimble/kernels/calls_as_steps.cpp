#include "nimble/kernels/calls_as_steps.h"

#include <ATen/core/Reduction.h>

#include "nimble/kernels/element_source.h"
#include "nimble/kernels/row_steps.h"

namespace nimble::kernels {
namespace {

const c10::IValue kNone;

// The steps of one call, as they are written down.
class Steps {
 public:
  Steps(const Step& call, c10::ScalarType type) : call_(call), type_(type) {}

  const Argument& argument(std::size_t n) const { return call_.arguments.at(n); }
  const c10::IValue& constant(std::size_t n) const { return std::get<c10::IValue>(argument(n)); }
  // A tensor that the call was given, of the type that is computed in.
  Argument wide(std::size_t n) { return rounds() ? cast(argument(n), c10::kFloat) : argument(n); }

  Argument add(const char* function, std::vector<Argument> arguments) {
    steps_.push_back({function, std::move(arguments)});
    return step(steps_.size() - 1);
  }
  Argument product(const Argument& a, const Argument& b) { return add("mul.Tensor", {a, b}); }
  Argument difference(const Argument& a, const Argument& b) {
    return add("sub.Tensor", {a, b, c10::IValue(1)});
  }
  // One number for each row, which broadcasts along it.
  Argument of_rows(const char* function, const Argument& x, const std::vector<std::int64_t>& dimensions) {
    return add(function, {x, c10::IValue(dimensions), c10::IValue(true), kNone});
  }

  Argument sum(const Argument& a, const Argument& b) { return add("add.Tensor", {a, b, c10::IValue(1)}); }

  std::vector<Step> finish(const Argument& result) {
    if (rounds()) cast(result, type_);
    return std::move(steps_);
  }

 private:
  bool rounds() const { return c10::isReducedFloatingType(type_); }
  Argument cast(const Argument& value, c10::ScalarType type) {
    const c10::IValue to(static_cast<std::int64_t>(type));
    return add("_to_copy", {value, to, kNone, kNone, kNone, c10::IValue(false), kNone});
  }

  const Step& call_;
  c10::ScalarType type_;
  std::vector<Step> steps_;
};

const char* reduction_named(std::int64_t reduction) {
  return reduction == at::Reduction::Mean ? "mean" : "sum";
}

// What is lost for each element is rounded as it would be in memory.
std::vector<Step> loss_of_all(const Step& call) {
  const auto reduction = std::get<c10::IValue>(call.arguments.at(2)).toInt();
  if (reduction == at::Reduction::None) return {call};
  Step each = call;
  each.arguments[2] = c10::IValue(static_cast<std::int64_t>(at::Reduction::None));
  return {each, {reduction_named(reduction), {step(0), kNone}}};
}

// The mean or sum of (1 - y) x - log(sigmoid(x)), where that logarithm is min(x, 0) - log(1 + exp(-|x|)).
std::vector<Step> cross_entropy_with_logits(const Step& call, c10::ScalarType type) {
  Steps steps(call, type);
  const auto reduction = steps.constant(4).toInt();
  const bool is_weighted =
      std::holds_alternative<Value>(call.arguments[2]) || std::holds_alternative<Value>(call.arguments[3]);
  if (reduction == at::Reduction::None || is_weighted) return {call};
  const c10::IValue one(1);
  const Argument x = steps.wide(0), y = steps.wide(1);
  const Argument wrong = steps.product(steps.add("rsub.Scalar", {y, one, one}), x);
  const Argument far = steps.add("exp", {steps.add("neg", {steps.add("abs", {x})})});
  const Argument logarithm =
      steps.difference(steps.add("clamp_max", {x, c10::IValue(0)}), steps.add("log1p", {far}));
  return steps.finish(steps.add(reduction_named(reduction), {steps.difference(wrong, logarithm), kNone}));
}

// y (g - sum(g y))
std::vector<Step> softmax_backward(const Step& call, c10::ScalarType type) {
  Steps steps(call, type);
  const Argument g = steps.wide(0), y = steps.wide(1);
  const Argument sum = steps.of_rows("sum.dim_IntList", steps.product(g, y), {steps.constant(2).toInt()});
  return steps.finish(steps.product(y, steps.difference(g, sum)));
}

// g - exp(y) sum(g)
std::vector<Step> log_softmax_backward(const Step& call, c10::ScalarType type) {
  Steps steps(call, type);
  const Argument g = steps.wide(0), y = steps.wide(1);
  const Argument sum = steps.of_rows("sum.dim_IntList", g, {steps.constant(2).toInt()});
  return steps.finish(steps.difference(g, steps.product(steps.add("exp", {y}), sum)));
}

std::vector<std::int64_t> last_dimensions(std::size_t count) {
  std::vector<std::int64_t> dimensions(count);
  for (std::size_t d = 0; d < count; ++d) dimensions[d] = -1 - static_cast<std::int64_t>(d);
  return dimensions;
}

// (h - mean(h) - z mean(h z)) / deviation, with h = g weight and z = (x - mean) / deviation. Of the gradients
// only that of the input goes over rows.
std::vector<Step> layer_norm_backward(const Step& call, c10::ScalarType type) {
  Steps steps(call, type);
  const auto wanted = steps.constant(7).toBoolList();
  if (!wanted[0] || wanted[1] || wanted[2]) return {call};
  const auto dimensions = last_dimensions(steps.constant(2).toIntList().size());
  const Argument g = steps.wide(0), x = steps.wide(1), mean = steps.argument(3), inverse = steps.argument(4);
  const Argument z = steps.product(steps.difference(x, mean), inverse);
  const Argument h =
      std::holds_alternative<Value>(steps.argument(5)) ? steps.product(g, steps.argument(5)) : g;
  const Argument mean_h = steps.of_rows("mean.dim", h, dimensions);
  const Argument mean_hz = steps.of_rows("mean.dim", steps.product(h, z), dimensions);
  const Argument rest = steps.difference(steps.difference(h, mean_h), steps.product(z, mean_hz));
  return steps.finish(steps.product(rest, inverse));
}

}  // namespace

std::vector<Step> as_steps(const Step& call, c10::ScalarType type) {
  if (is_loss(call)) return loss_of_all(call);
  if (call.function == "binary_cross_entropy_with_logits") return cross_entropy_with_logits(call, type);
  if (call.function == "_softmax_backward_data") return softmax_backward(call, type);
  if (call.function == "_log_softmax_backward_data") return log_softmax_backward(call, type);
  if (call.function == "native_layer_norm_backward") return layer_norm_backward(call, type);
  return {call};
}

// x centered or not, times the inverse of its deviation, or of its root mean square.
std::optional<NormWithNumbers> norm_with_numbers(const Step& call, c10::ScalarType type) {
  const auto epsilon = epsilon_of(call);
  if (!epsilon) return {};
  Steps steps(call, type);
  const auto dimensions = last_dimensions(steps.constant(1).toIntList().size());
  const auto number_of = [](const Argument& made) { return std::get<Value>(made).index; };
  std::vector<std::size_t> numbers;
  Argument x = steps.wide(0);
  if (call.function == "native_layer_norm") {
    const Argument mean = steps.of_rows("mean.dim", x, dimensions);
    numbers.push_back(number_of(mean));
    x = steps.difference(x, mean);
  }
  const Argument variance = steps.of_rows("mean.dim", steps.product(x, x), dimensions);
  const Argument inverse =
      steps.add("rsqrt", {steps.add("add.Scalar", {variance, *epsilon, c10::IValue(1)})});
  numbers.push_back(number_of(inverse));
  Argument y = steps.product(x, inverse);
  const Affine affine = affine_of(call);
  if (affine.weight) y = steps.product(y, *affine.weight);
  if (affine.bias) y = steps.sum(y, *affine.bias);
  NormWithNumbers norm{.steps = steps.finish(y), .results = {}};
  norm.results.push_back(norm.steps.size() - 1);
  norm.results.insert(norm.results.end(), numbers.begin(), numbers.end());
  return norm;
}

}  // namespace nimble::kernels
