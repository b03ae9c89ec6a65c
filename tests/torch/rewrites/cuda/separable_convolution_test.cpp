#include <random>

#include "forced.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

class SeparableConvolution : public RewriteTest {
 protected:
  static Forced fused(const Function& function, const Tensors& inputs) {
    return forced(function, inputs, kSeparableConvolution,
                  {&kFoldBatchNorm, &kChannelsLast, &kFuseConvolution});
  }
  void expect_drawn(const Function& function, const std::string& picture) {
    const Forced result = fused(function, image_);
    EXPECT_EQ(drawn(result.program), picture);
    expect_same(result.program, function, image_);
  }
  void expect_untouched(const Function& function) {
    const Forced result = fused(function, image_);
    EXPECT_TRUE(result.sites.empty()) << drawn(result.program);
    expect_same(result.program, function, image_);
  }

  const Tensors image_ = {torch::randn({1, 8, 9, 9}).contiguous(at::MemoryFormat::ChannelsLast)};
  const at::Tensor w3_ = torch::randn({8, 8, 3, 3}) / 8, w1_ = torch::randn({8, 8, 1, 1}) / 4,
                   bias_ = torch::randn({8}), filters_ = torch::randn({8, 1, 3, 3}) / 3;

  at::Tensor conv3(const at::Tensor& x) const { return at::conv2d(x, w3_, bias_, {1, 1}, {1, 1}); }
  at::Tensor conv1(const at::Tensor& x, std::int64_t stride = 1) const {
    return at::conv2d(x, w1_, bias_, {stride, stride});
  }
  at::Tensor depthwise(const at::Tensor& x, std::int64_t stride = 1, std::int64_t dilation = 1) const {
    return at::conv2d(x, filters_, bias_, {stride, stride}, {dilation, dilation}, {dilation, dilation}, 8);
  }
};

TEST_F(SeparableConvolution, OneKernelMakesBothParts) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {conv1(depthwise(in[0])).sum()}; }, R"(
%0 = nimble::matrix_convolution(input0, extern0, extern1, derived0, extern1)
%1 = sum(%0)
return %1
)");
}

TEST_F(SeparableConvolution, WithActivationsEverywhere) {
  // A cell of NASNet.
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = conv1(depthwise((in[0] * in[0]).relu(), 2));
    return {conv1(depthwise(x.relu())).sum()};
  };
  expect_drawn(function, R"(
%0 = mul(input0, input0)
%1 = nimble::matrix_convolution(%0, extern0, extern1, derived0, extern1)
%2 = nimble::matrix_convolution(%1, extern0, extern1, derived1, extern1)
%3 = sum(%2)
return %3
)");
}

TEST_F(SeparableConvolution, ABlockOfMobileNet) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = conv3(in[0]).relu();
    const at::Tensor y = at::hardtanh(depthwise(at::hardtanh(conv1(x), 0, 6)), 0, 6);
    return {(x + conv1(y)).sum()};
  };
  expect_drawn(function, R"(
%0 = convolution(input0, derived0)
%1 = nimble::pointwise(%0, extern0)
%2 = nimble::pointwise_convolution(%1, extern1, extern0)
%3 = nimble::matrix_convolution(%2, extern1, extern0, %1, derived1, extern0)
%4 = sum(%3)
return %4
)");
}

TEST_F(SeparableConvolution, NotWhereSomebodyElseReadsWhatLiesBetween) {
  //  depthwise ─┬─▶ 1×1
  //             └─▶ 1×1      one kernel each would do the depthwise part twice
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor d = depthwise(in[0]);
    return {conv1(d).sum(), at::conv2d(d, w1_).sum()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor d = depthwise(in[0]);
    return {conv1(d).sum(), d * 2};
  });
}

TEST_F(SeparableConvolution, NotWhereWhatLiesBetweenIsReturned) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor d = depthwise(in[0]);
    return {conv1(d).sum(), d};
  });
}

TEST_F(SeparableConvolution, NotWhereItIsAlsoWhatIsAdded) {
  //  depthwise ─┬─▶ 1×1 ─▶ +
  //             └──────────┘
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor d = depthwise(in[0]);
    return {(conv1(d) + d).relu().sum()};
  });
}

TEST_F(SeparableConvolution, NotThroughAView) {
  expect_untouched(
      [&](const Tensors& in) -> Tensors { return {conv1(depthwise(in[0]).transpose(2, 3)).sum()}; });
}

TEST_F(SeparableConvolution, NotIfWhatLiesBetweenIsWrittenOrWhatIsReadIs) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor d = depthwise(in[0]);
    d.select(2, 0).zero_();
    return {conv1(d).sum()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2, d = depthwise(x);
    x.select(2, 0).zero_();
    return {conv1(d).sum(), x + 1};
  });
}

TEST_F(SeparableConvolution, NotIfAWeightIsWritten) {
  const auto writes = [&](const at::Tensor& weight) -> Function {
    return [&](const Tensors& in) -> Tensors {
      const at::Tensor d = depthwise(in[0]);
      weight.mul_(0.5);
      return {conv1(d).sum()};
    };
  };
  EXPECT_TRUE(fused(writes(filters_), image_).sites.empty());
  EXPECT_TRUE(fused(writes(w1_), image_).sites.empty());
}

TEST_F(SeparableConvolution, NotInAProgramOfBranchesWhichRunBesideOneAnother) {
  //      ┌─▶ depthwise ─▶ 1×1 ─┐
  //   x ─┼─▶ depthwise ─▶ 1×1 ─┼─▶ cat      one kernel for each branch would be in the way of the others
  //      └─▶ depthwise ─▶ 1×1 ─┘
  const auto branches = [&](std::int64_t count) -> Function {
    return [=, this](const Tensors& in) -> Tensors {
      std::vector<at::Tensor> parts;
      for (std::int64_t i = 0; i < count; ++i) parts.push_back(conv1(depthwise(in[0] + i)));
      return {at::cat(parts, 1).sum()};
    };
  };
  EXPECT_EQ(fused(branches(1), image_).sites.size(), 1u);
  expect_untouched(branches(4));
}

TEST_F(SeparableConvolution, WhatComputesWeightsRunsBesideNothing) {
  //   w ─▶ ·2 ─┐
  //   w ─▶ ·3 ─┼─▶ cat ─▶ 1×1      all of it beforehand
  //   w ─▶ ·4 ─┘
  const Function function = [&](const Tensors& in) -> Tensors {
    std::vector<at::Tensor> weights;
    for (int i = 0; i < 12; ++i) weights.push_back(w1_ * i);
    return {at::conv2d(depthwise(in[0]), at::cat(weights)).sum()};
  };
  EXPECT_EQ(fused(function, image_).sites.size(), 1u);
}

TEST_F(SeparableConvolution, NorIsALongWayToAWeightPartOfAChain) {
  const Function branches = [&](const Tensors& in) -> Tensors {
    at::Tensor weight = w1_;
    for (int i = 0; i < 20; ++i) weight = weight * 0.9;
    std::vector<at::Tensor> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(at::conv2d(depthwise(in[0] + i), weight));
    return {at::cat(parts, 1).sum()};
  };
  expect_untouched(branches);
}

TEST_F(SeparableConvolution, NotWhereTheDepthwiseResultIsAddedAndNotMultiplied) {
  expect_untouched([&](const Tensors& in) -> Tensors { return {(conv1(in[0]) + depthwise(in[0])).sum()}; });
}

TEST_F(SeparableConvolution, NotBeforeALargerFilterOrOneThatLeavesPixelsOut) {
  expect_untouched([&](const Tensors& in) -> Tensors { return {conv3(depthwise(in[0])).sum()}; });
  expect_untouched([&](const Tensors& in) -> Tensors { return {conv1(depthwise(in[0]), 2).sum()}; });
}

TEST_F(SeparableConvolution, NotWithADilatedFilter) {
  expect_untouched([&](const Tensors& in) -> Tensors { return {conv1(depthwise(in[0], 1, 2)).sum()}; });
}

TEST_F(SeparableConvolution, NotWhereChannelsOfAPixelLieApart) {
  const Function function = [&](const Tensors& in) -> Tensors { return {conv1(depthwise(in[0])).sum()}; };
  const Forced result = fused(function, {image_[0].contiguous()});
  EXPECT_TRUE(result.sites.empty()) << drawn(result.program);
}

TEST_F(SeparableConvolution, InSinglePrecisionOnlyWhereTF32IsAllowed) {
  struct Disallow {
    bool before = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
    Disallow() { at::globalContext().setAllowTF32CuDNN(false); }
    ~Disallow() { at::globalContext().setAllowTF32CuDNN(before); }
  };
  const Function function = [&](const Tensors& in) -> Tensors { return {conv1(depthwise(in[0])).sum()}; };
  const Disallow disallow;
  EXPECT_TRUE(fused(function, image_).sites.empty());
  const auto half = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16); };
  const at::Tensor w1 = half(w1_), filters = half(filters_);
  const Function in_half = [&](const Tensors& in) -> Tensors {
    return {at::conv2d(at::conv2d(in[0], filters, {}, {1, 1}, {1, 1}, {1, 1}, 8), w1).sum()};
  };
  EXPECT_EQ(fused(in_half, {half(image_[0])}).sites.size(), 1u);
}

// What a program would be on a GPU where our kernel takes `ours` and everything else a hundred nanoseconds.
Rewritten measured(const Rewrite& rewrite, const Program& program, Nanoseconds ours) {
  const auto measure = [=](std::span<const Buffer>, std::span<const Task> tasks) {
    Nanoseconds time = 0;
    for (const Task& task : tasks) time += is_call_of(task, "nimble::matrix_convolution") ? ours : 100;
    return time;
  };
  return rewrite.apply(program, {.measure = measure});
}

TEST_F(SeparableConvolution, OnlyWhereOneKernelIsFasterThanTwo) {
  const Function function = [&](const Tensors& in) -> Tensors { return {conv1(depthwise(in[0])).sum()}; };
  const Program apart = forced(function, image_, kFuseConvolution, {&kChannelsLast}).program;
  EXPECT_EQ(measured(kSeparableConvolution, apart, 150).sites.size(), 1u);
  EXPECT_EQ(measured(kSeparableConvolution, apart, 250).sites.size(), 0u);
}

TEST_F(SeparableConvolution, AConvolutionAloneTakesOurKernelWhereThatIsFaster) {
  const Function function = [&](const Tensors& in) -> Tensors { return {conv1(in[0]).relu().sum()}; };
  const Program program = forced(function, image_, kChannelsLast).program;
  EXPECT_NE(drawn(measured(kFuseConvolution, program, 50).program).find("matrix_convolution"),
            std::string::npos);
  EXPECT_EQ(drawn(measured(kFuseConvolution, program, 150).program).find("matrix_convolution"),
            std::string::npos);
}

TEST_F(SeparableConvolution, SoDoesOneWithALargerFilterAndItIsNotTakenForOneOfAPixel) {
  const auto w = (torch::randn({16, 16, 3, 1}) / 7).contiguous(at::MemoryFormat::ChannelsLast);
  const auto filters = torch::randn({16, 1, 3, 3}) / 3;
  const Tensors image = {torch::randn({1, 16, 9, 9}).contiguous(at::MemoryFormat::ChannelsLast)};
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = at::conv2d(in[0], filters, {}, {1, 1}, {1, 1}, {1, 1}, 16);
    return {at::conv2d(x, w, {}, {2, 1}, {1, 0}).relu().sum()};
  };
  const Program program = forced(function, image, kChannelsLast).program;
  const Program fused = record_anew(measured(kFuseConvolution, program, 50).program, image);
  EXPECT_NE(drawn(fused).find("matrix_convolution"), std::string::npos) << drawn(fused);
  expect_same(fused, function, image);
  EXPECT_TRUE(measured(kSeparableConvolution, fused, 50).sites.empty());
}

TEST_F(SeparableConvolution, AnActivationBeforeItIsLeftToAProductOfOurs) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {conv1(depthwise(at::hardtanh(conv1(in[0] * 4), 0, 6))).sum()};
  };
  const Program program = forced(function, image_, kChannelsLast).program;
  const Program apart = record_anew(measured(kFuseConvolution, program, 50).program, image_);
  const Program together = record_anew(measured(kSeparableConvolution, apart, 50).program, image_);
  std::vector<std::pair<std::string, std::string>> behind_and_before;
  for (const Task& task : together.tasks) {
    if (!is_call_of(task, "nimble::matrix_convolution")) continue;
    behind_and_before.emplace_back(value_argument(task, 4).toStringRef(),
                                   value_argument(task, 11).toStringRef());
  }
  const std::vector<std::pair<std::string, std::string>> expected = {{"relu6", "none"}, {"none", "none"}};
  EXPECT_EQ(behind_and_before, expected);
  expect_same(together, function, image_);
}

TEST_F(SeparableConvolution, EveryWayThatWouldBeMeasuredIsKnownBeforehand) {
  const Function function = [&](const Tensors& in) -> Tensors { return {conv1(depthwise(in[0])).sum()}; };
  const Program apart = forced(function, image_, kFuseConvolution, {&kChannelsLast}).program;
  std::size_t ours = 0;
  const auto consider = [&](std::span<const Task> tasks) {
    ours += is_call_of(tasks[0], "nimble::matrix_convolution");
  };
  kSeparableConvolution.apply(apart, {.consider = consider});
  EXPECT_GT(ours, 1u);
}

TEST_F(SeparableConvolution, RandomNetworksGiveWhatEagerGives) {
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      std::mt19937 random(seed);
      Tensors values = {in[0] * 2};
      const auto pick = [&]() -> const at::Tensor& { return values[random() % values.size()]; };
      for (int i = 0; i < 12; ++i) {
        switch (random() % 6) {
          case 0:
            values.push_back(conv1(values.back()));
            break;
          case 1:
            values.push_back(depthwise(values.back()));
            break;
          case 2:
            values.push_back(conv1(depthwise(pick())));
            break;
          case 3:
            values.push_back(values.back().relu());
            break;
          case 4:
            values.push_back(at::hardtanh(pick(), 0, 6));
            break;
          case 5:
            values.push_back(pick() + pick());
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
  EXPECT_GT(fired, 20u);
}

}  // namespace
}  // namespace nimble
