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

TEST(CallsAsStepsTest, ALossIsOneForEachElementAndTheirMeanOrSum) {
  for (const std::string loss :
       {"mse_loss(x0, x1, R)", "smooth_l1_loss(x0, x1, R, 0.5)", "huber_loss(x0, x1, R, 0.5)"}) {
    const auto call = [&](const char* reduction) {
      return std::string(loss).replace(loss.find('R'), 1, reduction);
    };
    const std::string each = "%0 = " + call("0");
    EXPECT_EQ(steps_of(call("1"), 2, at::kFloat), each + "; %1 = mean(%0, none); return %1");
    EXPECT_EQ(steps_of(call("2"), 2, at::kFloat), each + "; %1 = sum(%0, none); return %1");
  }
}

TEST(CallsAsStepsTest, LossesOfWholeTensors) {
  for (const auto type : kTypes) {
    const at::Tensor a = (at::randn({3, 50}) * 2).to(type), b = at::rand({3, 50}).to(type),
                     x = a.to(at::kDouble), y = b.to(at::kDouble);
    for (const std::int64_t reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
      const auto expect_loss = [&](const std::string& call, const at::Tensor& exact) {
        SCOPED_TRACE(call);
        expect_near(run_kernel(steps_of(call, 2, type), {a, b}).results[0], exact, type);
      };
      const std::string r = std::to_string(reduction);
      expect_loss("smooth_l1_loss(x0, x1, " + r + ", 0.5)", at::smooth_l1_loss(x, y, reduction, 0.5));
      expect_loss("huber_loss(x0, x1, " + r + ", 1.5)", at::huber_loss(x, y, reduction, 1.5));
      expect_loss("binary_cross_entropy_with_logits(x0, x1, none, none, " + r + ")",
                  at::binary_cross_entropy_with_logits(x, y, {}, {}, reduction));
    }
  }
}

TEST(CallsAsStepsTest, FarFromZeroCrossEntropyIsAsNearAsAtens) {
  const at::Tensor x = at::tensor({100.0f, -100.0f, 30.0f, -30.0f, 8.0f, 0.0f});
  const std::string text = steps_of("binary_cross_entropy_with_logits(x0, x1, none, none, 2)", 2, at::kFloat);
  for (const double y : {0.0, 0.3, 1.0}) {
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const at::Tensor one = x.slice(0, i, i + 1), label = at::full_like(one, y);
      const auto loss = [](const at::Tensor& logit, const at::Tensor& wanted) {
        return at::binary_cross_entropy_with_logits(logit, wanted, {}, {}, at::Reduction::Sum);
      };
      const at::Tensor exact = loss(one.to(at::kDouble), label.to(at::kDouble));
      EXPECT_LE(error_of(run_kernel(text, {one, label}).results[0], exact),
                error_of(loss(one, label), exact) + 1e-7 * exact.item<double>())
          << x[i].item<float>() << " " << y;
    }
  }
}

TEST(CallsAsStepsTest, WeightedCrossEntropyAndThatOfEachElementAreTheirOnlyStep) {
  for (const std::string call : {"binary_cross_entropy_with_logits(x0, x1, x2, none, 1)",
                                 "binary_cross_entropy_with_logits(x0, x1, none, x2, 1)",
                                 "binary_cross_entropy_with_logits(x0, x1, none, none, 0)"}) {
    const std::size_t inputs = call.find("x2") == call.npos ? 2 : 3;
    EXPECT_EQ(steps_of(call, inputs, at::kFloat), "%0 = " + call + "; return %0");
  }
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

// Their results in the order of the call's: rows, and numbers of rows.
TEST(CallsAsStepsTest, NormsWithTheNumbersThatTheirWaysBackNeed) {
  for (const auto type : kTypes) {
    const at::Tensor x = (at::randn({3, 4, 50}) * 2 + 1).to(type), weight = at::randn({4, 50}).to(type),
                     bias = at::randn({4, 50}).to(type), wide = x.to(at::kDouble);
    const auto expect_results = [&](const std::string& call, const Tensors& inputs, const Tensors& exact) {
      const Expression whole = parse_expression("%0 = " + call + "; return %0");
      const auto norm = norm_with_numbers(whole.steps[0], type);
      ASSERT_TRUE(norm) << call;
      Expression parts{inputs.size(), norm->steps, {}};
      for (const std::size_t result : norm->results) parts.results.push_back(step(result));
      const auto given = run_kernel(to_string(parts), inputs).results;
      ASSERT_EQ(given.size(), exact.size());
      for (std::size_t i = 0; i < exact.size(); ++i) {
        SCOPED_TRACE(call + ", result " + std::to_string(i));
        EXPECT_EQ(given[i].sizes(), exact[i].sizes());
        expect_near(given[i], exact[i], i == 0 ? type : at::kFloat);
      }
    };
    const auto with_norm = [&](bool weighs) -> Tensors {
      const auto as_double = [](const at::Tensor& t) { return std::optional(t.to(at::kDouble)); };
      const auto [y, mean, inverse] =
          weighs ? at::native_layer_norm(wide, {4, 50}, as_double(weight), as_double(bias), 1e-5)
                 : at::native_layer_norm(wide, {4, 50}, {}, {}, 1e-5);
      return {y, mean, inverse};
    };
    expect_results("native_layer_norm(x0, [4, 50], x1, x2, 1e-05)", {x, weight, bias}, with_norm(true));
    expect_results("native_layer_norm(x0, [4, 50], none, none, 1e-05)", {x}, with_norm(false));
    const at::Tensor inverse = (wide.square().mean({1, 2}, true) + 1e-5).rsqrt();
    expect_results("_fused_rms_norm(x0, [4, 50], x1, 1e-05)", {x, weight},
                   {wide * inverse * weight.to(at::kDouble), inverse});
  }
  EXPECT_FALSE(norm_with_numbers(parse_expression("%0 = relu(x0); return %0").steps[0], at::kFloat));
}

}  // namespace
}  // namespace nimble::kernels
