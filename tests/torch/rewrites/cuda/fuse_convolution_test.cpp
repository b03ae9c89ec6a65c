#include <random>

#include "forced.h"
#include "nimble/torch/rewrites/cuda/slices.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

class FuseConvolution : public RewriteTest {
 protected:
  static Forced fused(const Function& function, const Tensors& inputs) {
    return forced(function, inputs, kFuseConvolution, {&kFoldBatchNorm, &kReluThroughCat, &kChannelsLast});
  }
  void expect_drawn(const Function& function, const std::string& picture) {
    const Forced result = fused(function, image_);
    EXPECT_EQ(drawn(result.program), picture);
    expect_same(result.program, function, image_);
  }

  const Tensors image_ = {torch::randn({1, 8, 9, 9})};
  const at::Tensor w3_ = torch::randn({8, 8, 3, 3}) / 8, w1_ = torch::randn({8, 8, 1, 1}) / 4,
                   bias_ = torch::randn({8}), depthwise_ = torch::randn({8, 1, 3, 3});

  at::Tensor conv3(const at::Tensor& x) const { return at::conv2d(x, w3_, bias_, {1, 1}, {1, 1}); }
  at::Tensor conv1(const at::Tensor& x) const { return at::conv2d(x, w1_, bias_); }
  at::Tensor depthwise(const at::Tensor& x) const {
    return at::conv2d(x, depthwise_, {}, {1, 1}, {1, 1}, {1, 1}, 8);
  }
};

TEST_F(FuseConvolution, TakesInBiasAndActivation) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {conv3(in[0]).relu()}; }, R"(
%0 = convolution(input0, derived0)
%1 = nimble::pointwise(%0, extern0)
%2 = copy_(%2, %1)
return %2
)");
}

TEST_F(FuseConvolution, TakesInASumAndTheActivationBehindIt) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = conv3(in[0]).relu();
    return {(conv1(x) + x).relu().sum()};
  };
  expect_drawn(function, R"(
%0 = convolution(input0, derived0)
%1 = nimble::pointwise(%0, extern0)
%2 = nimble::pointwise_convolution(%1, extern1, extern0, %1)
%3 = sum(%2)
return %3
)");
}

TEST_F(FuseConvolution, OfTwoSummedConvolutionsTheLaterOneTakesTheSum) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = conv3(in[0]), near = conv1(x), far = conv1(conv3(x));
    return {(near + far).relu().sum()};
  };
  expect_drawn(function, R"(
%0 = convolution(input0, derived0)
%1 = nimble::pointwise(%0, extern0)
%2 = nimble::pointwise_convolution(%1, extern1, extern0)
%3 = convolution(%1, derived1)
%4 = nimble::pointwise(%3, extern0)
%5 = nimble::pointwise_convolution(%4, extern1, extern0, %2)
%6 = sum(%5)
return %6
)");
}

TEST_F(FuseConvolution, FoldedBatchNormAndSixAtMost) {
  const at::Tensor mean = torch::randn({8}), variance = torch::rand({8}) + 0.5;
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor y =
        at::batch_norm(depthwise(in[0]), bias_, mean, mean, variance, false, 0.1, 1e-5, false);
    return {at::hardtanh(y, 0, 6)};
  };
  expect_drawn(function, R"(
%0 = nimble::depthwise_convolution(input0, derived0, derived1)
return %0
)");
}

// Two depthwise convolutions of different shapes with the same filter; how often something is measured where
// ours takes `ours` and PyTorch's 100.
struct Measured {
  int times = 0;
  std::size_t sites = 0;
};
Measured measured_with(Nanoseconds ours, const at::Tensor& filter) {
  const Tensors images = {torch::randn({1, 8, 9, 9}), torch::randn({1, 8, 7, 7})};
  const Program program = record(images, [&](const Tensors& in) -> Tensors {
    return {at::conv2d(in[0], filter, {}, {1, 1}, {1, 1}, {1, 1}, 8),
            at::conv2d(in[1], filter, {}, {1, 1}, {1, 1}, {1, 1}, 8)};
  });
  Measured measured;
  const auto measure = [&](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
    ++measured.times;
    return tasks[0].op.operator_name().name == "nimble::depthwise_convolution" ? ours : 100;
  };
  measured.sites = kFuseConvolution.apply(program, {.measure = measure}).sites.size();
  return measured;
}

TEST_F(FuseConvolution, ADepthwiseKernelThatIsClearlyFasterForOneShapeIsTakenForAllWithThatFilter) {
  const Measured measured = measured_with(70, depthwise_);
  EXPECT_EQ(measured.sites, 2u);
  EXPECT_EQ(measured.times, 5);  // two ways of ours for each shape, and PyTorch's for one
}

TEST_F(FuseConvolution, OneThatIsNotIsMeasuredForEachShape) {
  EXPECT_EQ(measured_with(90, depthwise_).times, 6);
  const Measured slower = measured_with(200, depthwise_);
  EXPECT_EQ(slower.times, 6);
  EXPECT_EQ(slower.sites, 0u);
}

TEST_F(FuseConvolution, OfTheWaysToDivideTheWorkOfADepthwiseConvolutionTheFasterIsTaken) {
  const Program program =
      record({torch::randn({1, 8, 9, 9})}, [&](const Tensors& in) -> Tensors { return {depthwise(in[0])}; });
  for (const std::int64_t faster : {0, 1}) {
    const auto measure = [&](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
      const auto number = argument_named(tasks[0].op, "candidate");
      return !number ? 100 : value_argument(tasks[0], *number).toInt() == faster ? 50 : 70;
    };
    const Rewritten rewritten = kFuseConvolution.apply(program, {.measure = measure});
    const Task& task = rewritten.program.tasks.back();
    ASSERT_EQ(task.op.operator_name().name, "nimble::depthwise_convolution");
    EXPECT_EQ(value_argument(task, *argument_named(task.op, "candidate")).toInt(), faster);
  }
}

TEST_F(FuseConvolution, ADepthwiseConvolutionDoesTheActivationBeforeIt) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {depthwise((in[0] * in[0]).relu())}; }, R"(
%0 = mul(input0, input0)
%1 = nimble::depthwise_convolution(%0, derived0)
return %1
)");
}

TEST_F(FuseConvolution, AnActivationThatOthersReadTooStays) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor x = (in[0] * in[0]).relu();
        return {depthwise(x), x};
      },
      R"(
%0 = mul(input0, input0)
%1 = relu(%0)
%2 = nimble::depthwise_convolution(%0, derived0)
return %2 %1
)");
}

TEST_F(FuseConvolution, AnActivationBehindAConvolutionBelongsToThatOne) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {depthwise(conv3(in[0]).relu()).sum()};
  };
  expect_drawn(function, R"(
%0 = convolution(input0, derived0)
%1 = nimble::pointwise(%0, extern0)
%2 = nimble::depthwise_convolution(%1, derived1)
%3 = sum(%2)
return %3
)");
}

TEST_F(FuseConvolution, ButSixAtMostBelongsToTheDepthwiseOneBehindIt) {
  // A block of MobileNetV2: no library's product knows relu6, so it would be a kernel of its own.
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = conv3(in[0]).relu();
    const at::Tensor y = at::hardtanh(depthwise(at::hardtanh(conv1(x), 0, 6)), 0, 6);
    return {(x + conv1(y)).sum()};
  };
  expect_drawn(function, R"(
%0 = convolution(input0, derived0)
%1 = nimble::pointwise(%0, extern0)
%2 = nimble::pointwise_convolution(%1, extern1, extern0)
%3 = nimble::depthwise_convolution(%2, derived1)
%4 = nimble::pointwise_convolution(%3, extern1, extern0, %1)
%5 = sum(%4)
return %5
)");
}

TEST_F(FuseConvolution, WhatSomebodyElseReadsStays) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = conv3(in[0]);
    return {y.relu().sum(), y.sum()};
  };
  expect_drawn(function, R"(
%0 = convolution(input0, derived0)
%1 = nimble::pointwise(%0, extern0)
%2 = relu(%1)
%3 = sum(%2)
%4 = sum(%1)
return %3 %4
)");
}

TEST_F(FuseConvolution, NotWithASumThatBroadcasts) {
  const at::Tensor shift = torch::randn({1, 8, 1, 1});
  const Function function = [&](const Tensors& in) -> Tensors {
    return {(conv3(in[0]) + shift).relu().sum()};
  };
  const Forced result = fused(function, image_);
  EXPECT_EQ(operators(result.program), (std::vector<std::string>{"aten::convolution", "nimble::pointwise",
                                                                 "aten::add", "aten::relu", "aten::sum"}));
  expect_same(result.program, function, image_);
}

TEST_F(FuseConvolution, NotASumOfAConvolutionWithItself) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = conv3(in[0]);
    return {(y + y).relu().sum()};
  };
  expect_same(fused(function, image_).program, function, image_);
}

TEST_F(FuseConvolution, NotTransposedOrWithWeightsThatChange) {
  const Function transposed = [&](const Tensors& in) -> Tensors {
    return {at::conv_transpose2d(in[0], w3_).relu()};
  };
  EXPECT_TRUE(fused(transposed, image_).sites.empty());
  const Function computed = [&](const Tensors& in) -> Tensors {
    return {at::conv2d(in[0], in[0].slice(2, 0, 3).slice(3, 0, 3)).relu()};
  };
  EXPECT_TRUE(fused(computed, image_).sites.empty());
}

TEST_F(FuseConvolution, NotIfTheProgramWritesAWeightOrABias) {
  const auto writes = [&](const at::Tensor& weight) -> Function {
    return [&](const Tensors& in) -> Tensors {
      const at::Tensor y = conv3(in[0]);
      weight.mul_(0.5);
      return {y.relu()};
    };
  };
  EXPECT_TRUE(fused(writes(w3_), image_).sites.empty());
  EXPECT_TRUE(fused(writes(bias_), image_).sites.empty());
}

TEST_F(FuseConvolution, NotIfTheImageIsWrittenBeforeTheActivation) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2, y = conv3(x);
    x.select(2, 0).zero_();
    return {y.relu(), x + 1};
  };
  const Forced result = fused(function, image_);
  EXPECT_TRUE(result.sites.empty());
  expect_same(result.program, function, image_);
}

TEST_F(FuseConvolution, NotWithASummandThatIsWrittenBeforeTheActivation) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2, sum = conv3(in[0]) + x;
    x.select(2, 0).zero_();
    return {sum.relu().sum(), x + 1};
  };
  const Forced result = fused(function, image_);
  const auto names = operators(result.program);
  EXPECT_EQ(std::ranges::count(names, "aten::add"), 2);
  expect_same(result.program, function, image_);
}

TEST_F(FuseConvolution, NotWhatIsReturnedOrSeenThroughAView) {
  const Function returned = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = conv3(in[0]);
    return {y.relu().sum(), y};
  };
  const Function viewed = [&](const Tensors& in) -> Tensors {
    return {conv3(in[0]).transpose(2, 3).relu().sum()};
  };
  const Function half = [&](const Tensors& in) -> Tensors {
    return {conv3(in[0]).slice(1, 0, 4).relu().sum()};
  };
  for (const Function& function : {returned, viewed, half}) {
    const Forced result = fused(function, image_);
    const auto names = operators(result.program);
    EXPECT_EQ(std::ranges::count(names, "aten::relu"), 1) << drawn(result.program);
    expect_same(result.program, function, image_);
  }
}

TEST_F(FuseConvolution, NotAnActivationThatWritesToATensorItWasGiven) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor both = torch::zeros({1, 16, 9, 9});
    at::Tensor half = both.slice(1, 0, 8);
    at::silu_out(half, conv3(in[0]));
    return {both + 1};
  };
  const Forced result = fused(function, image_);
  const auto names = operators(result.program);
  EXPECT_EQ(std::ranges::count(names, "aten::silu"), 1) << drawn(result.program);
  expect_same(result.program, function, image_);
}

TEST_F(FuseConvolution, NotOneThatWritesToATensorItWasGiven) {
  const std::vector<std::int64_t> one = {1, 1}, none = {0, 0};
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor both = torch::zeros({1, 16, 9, 9});
    at::Tensor half = both.slice(1, 0, 8);
    at::convolution_out(half, in[0], w3_, bias_, one, one, one, false, none, 1);
    return {both + 1};
  };
  const Forced result = fused(function, image_);
  EXPECT_TRUE(result.sites.empty());
  expect_same(result.program, function, image_);
}

TEST_F(FuseConvolution, NotInDoublePrecision) {
  const at::Tensor weight = w3_.to(at::kDouble);
  const Function function = [&](const Tensors& in) -> Tensors { return {at::conv2d(in[0], weight).relu()}; };
  EXPECT_TRUE(fused(function, {torch::randn({1, 8, 9, 9}, at::kDouble)}).sites.empty());
}

TEST_F(FuseConvolution, ChannelsOfAPixelStayTogetherFromTheFirstConvolutionOn) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::max_pool2d(conv1(conv3(in[0]).relu()).relu(), 2).flatten(1)};
  };
  const Forced result = fused(function, image_);
  for (const Task& task : result.program.tasks) {
    if (!task.op.operator_name().name.starts_with("nimble::pointwise_convolution")) continue;
    EXPECT_EQ(std::get<TensorRef>(task.arguments[0]).strides[1], 1);
  }
  expect_same(result.program, function, image_);
}

// Random networks of everything that the rewrite knows, and some that it does not.
TEST_F(FuseConvolution, RandomNetworksGiveWhatEagerGives) {
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      std::mt19937 random(seed);
      Tensors values = {in[0], in[0] * 2};  // never the argument in place
      const auto pick = [&]() -> const at::Tensor& { return values[random() % values.size()]; };
      for (int i = 0; i < 12; ++i) {
        switch (random() % 9) {
          case 0:
            values.push_back(conv3(pick()));
            break;
          case 1:
            values.push_back(conv1(pick()));
            break;
          case 2:
            values.push_back(depthwise(pick()));
            break;
          case 3:
            values.push_back(pick().relu());
            break;
          case 4:
            values.push_back(at::hardtanh(pick(), 0, 6));
            break;
          case 5:
            values.push_back(pick() + pick());
            break;
          case 6:
            values.push_back(at::silu(pick()));
            break;
          case 7:
            values.push_back(at::relu_(values.back()));
            break;
          case 8:
            values.push_back(at::avg_pool2d(pick(), 3, 1, 1));
            break;
        }
      }
      return {values.back(), values[values.size() / 2] * 2};
    };
    SCOPED_TRACE(seed);
    const Forced result = fused(function, image_);
    fired += result.sites.size();
    expect_same(result.program, function, image_, 1e-3);
  }
  EXPECT_GT(fired, 100u);
}

}  // namespace
}  // namespace nimble
