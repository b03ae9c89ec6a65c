// Calls as the steps that they consist of: what those compute together, in ATen and in a generated kernel, is
// what the call does.
#include "nimble/kernels/calls_as_steps.h"

#include "tests/kernels/row_kernels.h"

namespace nimble::kernels {
namespace {

using namespace testing;

std::string steps_of(const std::string& call, std::size_t inputs, at::ScalarType type) {
  const Expression whole = parse_expression("%0 = " + call + "; return %0");
  Expression parts{inputs, as_steps(whole.steps[0], type), {}};
  parts.results = {step(parts.steps.size() - 1)};
  return to_string(parts);
}

// No more than a few roundings of the largest value, whatever the type that the steps go through.
void expect_near(const at::Tensor& given, const at::Tensor& exact, at::ScalarType type) {
  const double rounding = type == at::kFloat ? 0x1p-22 : type == at::kHalf ? 0x1p-10 : 0x1p-7;
  EXPECT_EQ(given.scalar_type(), type);
  EXPECT_LE(error_of(given, exact), rounding * exact.abs().max().item<double>());
}

TEST(CallsAsStepsTest, OtherCallsAreTheirOnlyStep) {
  EXPECT_EQ(steps_of("relu(x0)", 1, at::kFloat), "%0 = relu(x0); return %0");
  EXPECT_EQ(steps_of("mse_loss(x0, x1, 0)", 2, at::kFloat), "%0 = mse_loss(x0, x1, 0); return %0");
}

TEST(CallsAsStepsTest, ASquaredErrorIsOneForEachElementAndTheirMeanOrSum) {
  EXPECT_EQ(steps_of("mse_loss(x0, x1, 1)", 2, at::kFloat),
            "%0 = mse_loss(x0, x1, 0); %1 = mean(%0, none); return %1");
  EXPECT_EQ(steps_of("mse_loss(x0, x1, 2)", 2, at::kFloat),
            "%0 = mse_loss(x0, x1, 0); %1 = sum(%0, none); return %1");
}

TEST(CallsAsStepsTest, TheWaysBackThroughSoftmaxes) {
  for (const auto type : kTypes) {
    for (const std::int64_t columns : {1, 40, 1025}) {
      const at::Tensor gradient = at::randn({3, columns}).to(type), x = at::randn({3, columns});
      const std::string rest = "(x0, x1, -1, " + std::to_string(static_cast<int>(type)) + ")";
      const at::Tensor y = x.softmax(-1).to(type), log = x.log_softmax(-1).to(type);
      expect_near(run_kernel(steps_of("_softmax_backward_data" + rest, 2, type), {gradient, y}).results[0],
                  at::_softmax_backward_data(gradient.to(at::kDouble), y.to(at::kDouble), -1, at::kDouble),
                  type);
      expect_near(
          run_kernel(steps_of("_log_softmax_backward_data" + rest, 2, type), {gradient, log}).results[0],
          at::_log_softmax_backward_data(gradient.to(at::kDouble), log.to(at::kDouble), -1, at::kDouble),
          type);
    }
  }
}

TEST(CallsAsStepsTest, TheWayBackThroughALayerNorm) {
  for (const auto type : kTypes) {
    const at::Tensor gradient = at::randn({3, 4, 50}).to(type), x = at::randn({3, 4, 50}).to(type),
                     weight = at::randn({4, 50}).to(type);
    const auto [y, mean, inverse] = at::native_layer_norm(x.to(at::kDouble), {4, 50}, {}, {}, 1e-5);
    const Tensors inputs = {gradient, x, mean.to(at::kFloat), inverse.to(at::kFloat), weight};
    for (const bool weighs : {true, false}) {
      const std::optional<at::Tensor> wide = weighs ? std::optional(weight.to(at::kDouble)) : std::nullopt;
      const auto [exact, none, neither] =
          at::native_layer_norm_backward(gradient.to(at::kDouble), x.to(at::kDouble), {4, 50}, mean, inverse,
                                         wide, {}, {true, false, false});
      const Step call{"native_layer_norm_backward",
                      {input(0), input(1), c10::IValue(std::vector<std::int64_t>{4, 50}), input(2), input(3),
                       weighs ? Argument(input(4)) : Argument(c10::IValue()), c10::IValue(),
                       c10::IValue(c10::List<bool>({true, false, false}))}};
      Expression parts{weighs ? 5u : 4u, as_steps(call, type), {}};
      parts.results = {step(parts.steps.size() - 1)};
      const Tensors given(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(parts.inputs));
      expect_near(run_kernel(to_string(parts), given).results[0], exact, type);
    }
  }
}

}  // namespace
}  // namespace nimble::kernels
