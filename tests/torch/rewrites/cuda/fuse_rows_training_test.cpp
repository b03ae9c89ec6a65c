// Rows in training, where results may round otherwise than eager's.
#include <algorithm>
#include <limits>

#include "forced.h"
#include "nimble/torch/rewrites/uses.h"
#include "nimble/torch/run_in_double.h"
#include "random_values.h"

namespace nimble {
namespace {

const RewriteContext kTolerant{.device = c10::Device(c10::kCUDA, 0), .trains = true, .tolerant = true};

class FuseRowsTraining : public RewriteTest {
 protected:
  AppliedRewrites trained(const Function& function, const RewriteContext& context = kTolerant) const {
    const Program program = record(inputs_, function);
    const std::vector<std::string> names = {"fuse_rows"};
    AppliedRewrites applied = apply_rewrites(program, rewrites_named(names), inputs_, context);
    for (const RewriteReport& report : applied.reports) EXPECT_EQ(report.dropped, "") << report.name;
    return applied;
  }
  void expect_drawn(const Function& function, const std::string& picture) const {
    const AppliedRewrites applied = trained(function);
    EXPECT_EQ(drawn(applied.program), picture);
    EXPECT_FALSE(applied.exact);
    expect_same(applied.program, function, inputs_, 1e-5);
  }

  // A layer norm's, for its input alone, as a GPU's recorder asks for it.
  at::Tensor norm_backward(const at::Tensor& gradient, const at::Tensor& x) const {
    const auto [y, mean, inverse] = at::native_layer_norm(x, {6}, weight_, bias_, 1e-5);
    return std::get<0>(at::native_layer_norm_backward(gradient, x, {6}, mean, inverse, weight_, bias_,
                                                      {true, false, false}));
  }
  static at::Tensor softmax_backward(const at::Tensor& gradient, const at::Tensor& y) {
    return at::_softmax_backward_data(gradient, y, -1, y.scalar_type());
  }

  const Tensors inputs_ = {torch::randn({2, 4, 6}), torch::randn({2, 4, 6}), torch::randn({2, 4, 6})};
  const at::Tensor weight_ = torch::randn({6}), bias_ = torch::randn({6}), matrix_ = torch::randn({6, 6});
};

TEST_F(FuseRowsTraining, TheWayBackThroughASoftmaxTakesInWhatIsAroundIt) {
  expect_drawn([](const Tensors& in) -> Tensors { return {softmax_backward(in[0] * in[1], in[2]) * 0.125}; },
               R"(
%0 = nimble::rows(input0, input1, input2)
return %0
)");
}

TEST_F(FuseRowsTraining, TheWayBackThroughALogSoftmaxToo) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        return {at::_log_softmax_backward_data(in[0] * in[1], in[2], 2, at::kFloat) * 0.125};
      },
      R"(
%0 = nimble::rows(input0, input1, input2)
return %0
)");
}

// The gradient that comes past the norm, by the residual connection, is added behind it.
TEST_F(FuseRowsTraining, TheWayBackThroughALayerNormTakesInTheSumsAroundIt) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {norm_backward(in[0] + in[1], in[2]) + in[0]}; },
               R"(
%0, %1, %2 = native_layer_norm(input2, extern0, extern1)
%3 = nimble::rows(input0, input1, input2, %1, %2, extern0)
return %3
)");
}

TEST_F(FuseRowsTraining, TheGradientsOfWeightAndBiasStayACallOfTheirOwn) {
  const auto [y, mean, inverse] = at::native_layer_norm(inputs_[2], {6}, weight_, bias_, 1e-5);
  expect_drawn(
      [&, mean = mean, inverse = inverse](const Tensors& in) -> Tensors {
        const at::Tensor gradient = in[0] + in[1];
        const auto back = [&](std::array<bool, 3> wanted) {
          return at::native_layer_norm_backward(gradient, in[2], {6}, mean, inverse, weight_, bias_, wanted);
        };
        const auto for_input = back({true, false, false}), for_weights = back({false, true, true});
        return {std::get<0>(for_input), std::get<1>(for_weights), std::get<2>(for_weights)};
      },
      R"(
%0, %1 = nimble::rows(input0, input1, input2, extern0, extern1, extern2)
%2, %3 = native_layer_norm_backward(%0, input2, extern0, extern1, extern2, extern3)
return %1 %2 %3
)");
}

// What the way back needs of them is written as well.
TEST_F(FuseRowsTraining, LayerNormsWriteTheirMeanAndDeviation) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const auto [y, mean, inverse] = at::native_layer_norm(in[0] + in[1], {6}, weight_, bias_, 1e-5);
        return {(y * 2).softmax(-1), mean, inverse};
      },
      R"(
%0, %1, %2 = nimble::rows(input0, input1, extern0, extern1)
return %2 %0 %1
)");
}

TEST_F(FuseRowsTraining, AWholeStepOfANormAndItsWayBack) {
  const at::AutoGradMode with_grad(true);
  const at::Tensor weight = weight_.clone().requires_grad_(), bias = bias_.clone().requires_grad_(),
                   matrix = matrix_.clone().requires_grad_();
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].matmul(matrix) + in[1];
    const at::Tensor y = at::layer_norm(x, {6}, weight, bias).matmul(matrix) + x;
    return torch::autograd::grad({(y * in[2]).sum()}, {weight, bias, matrix});
  };
  const AppliedRewrites applied = trained(function);
  const auto names = operators(applied.program);
  EXPECT_EQ(std::ranges::count(names, "aten::native_layer_norm"), 0) << drawn(applied.program);
  EXPECT_GE(std::ranges::count(names, "nimble::rows"), 1) << drawn(applied.program);
  expect_same(applied.program, function, inputs_, 1e-4);
}

// Nobody waits for a change that an optimizer makes later.
TEST_F(FuseRowsTraining, ANormTakesInTheSumBeforeItThoughItsWeightIsChangedAtTheEnd) {
  const at::Tensor weight = weight_.clone();
  const Program program = record(inputs_, [&](const Tensors& in) -> Tensors {
    const auto [y, mean, inverse] = at::native_layer_norm(in[0] + in[1], {6}, weight, bias_, 1e-5);
    const at::Tensor gradient = y.matmul(matrix_).sum(0).sum(0);
    weight.sub_(gradient);
    return {y, mean, inverse};
  });
  const std::vector<std::string> names = {"fuse_rows"};
  const AppliedRewrites applied = apply_rewrites(program, rewrites_named(names), inputs_, kTolerant);
  EXPECT_EQ(operators(applied.program).front(), "nimble::rows") << drawn(applied.program);
  EXPECT_EQ(applied.program.tasks.front().writes.size(), 3u);
  EXPECT_EQ(std::ranges::count(operators(applied.program), "aten::add"), 0);
}

// As an optimizer does. The kernel reads the weight before that, and the product does not come behind it.
TEST_F(FuseRowsTraining, WeightsMayBeChangedAtTheEndOfTheStep) {
  const at::Tensor weight = weight_.clone();
  const Program program = record(inputs_, [&](const Tensors& in) -> Tensors {
    const at::Tensor scaled = (in[0] * weight).softmax(-1);
    weight.add_(in[1].select(0, 0).select(0, 0));
    return {scaled * in[2]};
  });
  const std::vector<std::string> names = {"fuse_rows"};
  const AppliedRewrites applied = apply_rewrites(program, rewrites_named(names), inputs_, kTolerant);
  EXPECT_EQ(drawn(applied.program), R"(
%0 = nimble::rows(input0, extern0, input2)
extern0 = add_(extern0, input1)
return %0
)");
}

TEST_F(FuseRowsTraining, NotAcrossAChangeOfWhatIsReadTwice) {
  const at::Tensor weight = weight_.clone();
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * weight;
    weight.add_(in[1].select(0, 0).select(0, 0));
    return {(product * weight).softmax(-1)};
  };
  const AppliedRewrites applied = trained(function);
  const auto kernel = std::ranges::find_if(applied.program.tasks,
                                           [](const Task& task) { return is_call_of(task, "nimble::rows"); });
  ASSERT_NE(kernel, applied.program.tasks.end());
  EXPECT_EQ(applied.program.tasks.size(), 3u) << "the first product stays before the change";
}

// As behind the mean of what each row lost: the gradient is one number, spread over the rows, and then over
// their elements. Computed inside the kernel it would be of no shape.
TEST_F(FuseRowsTraining, ANumberThatIsSpreadOverRowsIsReadAndNotComputed) {
  const at::Tensor gradient = torch::randn({});
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor of_rows = gradient.neg().expand({2, 4}) / 8;
    const at::Tensor of_elements = of_rows.unsqueeze(-1).expand({2, 4, 6}) * in[0];
    return {at::_log_softmax_backward_data(of_elements, in[1], 2, at::kFloat)};
  };
  const AppliedRewrites applied = trained(function);
  EXPECT_EQ(operators(applied.program).back(), "nimble::rows");
  expect_same(applied.program, function, inputs_, 1e-5);
}

TEST_F(FuseRowsTraining, ACastSeesWhatWasChangedBeforeIt) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor y = (in[0] * in[1]).softmax(-1);
    y.select(-1, 0).fill_(0);
    return {y.to(at::kHalf), y};
  };
  expect_same(trained(function).program, function, inputs_, 1e-3);
}

TEST_F(FuseRowsTraining, NotWithoutATolerance) {
  RewriteContext exact = kTolerant;
  exact.tolerant = false;
  const Function function = [](const Tensors& in) -> Tensors {
    return {softmax_backward(in[0] * in[1], in[2]) * 0.125};
  };
  EXPECT_TRUE(trained(function, exact).reports.empty());
}

TEST_F(FuseRowsTraining, AloneTheyStayWhatTheyAre) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {softmax_backward(in[0], in[1]), norm_backward(in[0], in[1])};
  };
  EXPECT_TRUE(trained(function).reports.empty());
}

TEST_F(FuseRowsTraining, NotWhatIsChangedLater) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor gradient = in[0] * in[1];
    const at::Tensor back = softmax_backward(gradient, in[2]);
    gradient.select(1, 0).zero_();
    return {back, gradient};
  };
  EXPECT_TRUE(trained(function).reports.empty());
}

// By how many roundings a result is further from float64 than twice as far as eager's: of its largest value,
// or of one, since what cancels out was as large before.
double roundings_beyond_twice(const at::Tensor& ours, const at::Tensor& eagers, const at::Tensor& wide) {
  constexpr double kRounding = std::numeric_limits<float>::epsilon() / 2;
  const auto distance = [&](const at::Tensor& result) {
    return (result.to(at::kDouble) - wide).abs().max().item<double>();
  };
  const double largest = std::max(1.0, wide.abs().max().item<double>());
  return (distance(ours) - 2 * distance(eagers)) / (largest * kRounding);
}

TEST_F(FuseRowsTraining, RandomProgramsAreAsNearToFloat64AsEager) {
  using Values = RandomValues;
  const std::vector<Values::Operation> operations = {
      [](Values& v) { return softmax_backward(v.pick(), v.pick().softmax(-1)); },
      [](Values& v) {
        return at::_log_softmax_backward_data(v.pick(), v.pick().log_softmax(-1), 2, at::kFloat);
      },
      [&](Values& v) { return norm_backward(v.pick(), v.pick() + v.pick()); },
      [](Values& v) { return v.pick() * v.pick().sigmoid(); },
      [](Values& v) { return v.pick() + v.pick(); },
      [](Values& v) { return at::tanh(v.pick()) * v.pick().mean(-1, true); },
      [&](Values& v) { return v.pick().matmul(matrix_).tanh(); },
  };
  std::size_t fired = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      Values values({in[0], in[1], in[2]}, /*made=*/3, seed);
      values.grow(10, operations);
      return {at::tanh(values.last()), values[6] * 1};
    };
    SCOPED_TRACE(seed);
    const AppliedRewrites applied = trained(function);
    for (const RewriteReport& report : applied.reports) fired += report.sites.size();
    const Tensors expected = function(inputs_), given = run(applied.program, inputs_);
    const auto wide = run_in_double(record(inputs_, function), inputs_);
    ASSERT_TRUE(wide);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(roundings_beyond_twice(given[i], expected[i], wide->results[i]), 4) << "result " << i;
    }
  }
  EXPECT_GT(fired, 60u);
}

}  // namespace
}  // namespace nimble
