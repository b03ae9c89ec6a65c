// fuse_convolution where float32 may not be rounded to TF32.

#include <set>

#include "forced.h"
#include "nimble/torch/rewrites/convolution_settings.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

// Calls of the libraries that take TF32 where the settings allow it.
bool may_round(const Task& task) {
  static constexpr const char* kNames[] = {"aten::cudnn_convolution_relu", "aten::cudnn_convolution_add_relu",
                                           "nimble::pointwise_convolution", "nimble::fused_convolution"};
  return may_round_to_tf32(task) || std::ranges::any_of(kNames, [&](const char* name) {
           return is_call_of(task, name) && first_result(task).dtype == at::kFloat;
         });
}

// Of a GPU where each operator takes a hundred nanoseconds but for these.
RewriteContext measured(std::map<std::string, Nanoseconds> times) {
  return {.precise = true, .measure = [times](std::span<const Buffer>, std::span<const Task> tasks) {
            Nanoseconds time = 0;
            for (const Task& task : tasks) {
              const auto known = times.find(task.op.operator_name().name);
              time += known == times.end() ? 100 : known->second;
            }
            return time;
          }};
}

class PreciseConvolution : public RewriteTest {
 protected:
  // A picture of three channels, of which a pixel's lie apart, and one of everything.
  Tensors network(const Tensors& in) const {
    const auto type = in[0].scalar_type();
    const auto conv = [&](const at::Tensor& x, const at::Tensor& weight, std::int64_t stride = 1,
                          std::int64_t groups = 1) {
      const auto padding = weight.size(2) / 2;
      return at::conv2d(x, weight.to(type), bias_.to(type), {stride, stride}, {padding, padding}, {1, 1},
                        groups);
    };
    const at::Tensor x = conv(in[0], stem_, 2).relu();
    const at::Tensor y = at::silu(conv(x, one_));
    const at::Tensor z = (conv(y, three_) + x).relu();
    return {conv(conv(z, grouped_, 1, 2), depthwise_, 1, 8).sum()};
  }
  Function network() const {
    return [this](const Tensors& in) { return network(in); };
  }
  static Forced fused(const Function& function, const Tensors& inputs, const RewriteContext& context) {
    return forced(function, inputs, kFuseConvolution, {&kChannelsLast}, context);
  }
  static void expect_precise(const Forced& result, const Function& function, const Tensors& inputs) {
    for (const Task& task : result.program.tasks) {
      EXPECT_FALSE(may_round(task)) << task.op.operator_name() << " in\n" << drawn(result.program);
    }
    expect_same(result.program, function, inputs);
  }
  void expect_drawn(const RewriteContext& context, const std::string& picture) const {
    const Forced result = fused(network(), image_, context);
    EXPECT_EQ(drawn(result.program), picture);
    expect_precise(result, network(), image_);
  }

  const Tensors image_ = {torch::randn({1, 3, 9, 9})};
  const at::Tensor stem_ = torch::randn({8, 3, 3, 3}) / 5, one_ = torch::randn({8, 8, 1, 1}) / 3,
                   three_ = torch::randn({8, 8, 3, 3}) / 8, grouped_ = torch::randn({8, 4, 3, 3}) / 6,
                   depthwise_ = torch::randn({8, 1, 3, 3}) / 3, bias_ = torch::randn({8});
};

TEST_F(PreciseConvolution, WithoutMeasuringProductsAreOursAndTheOthersAreToldNotToRound) {
  expect_drawn({.precise = true}, R"(
%0 = _convolution(input0, derived0)
%1 = nimble::pointwise(%0, extern0)
%2 = nimble::matrix_convolution(%1, extern1, extern0)
%3 = _convolution(%2, derived1)
%4 = nimble::pointwise(%3, extern0, %1)
%5 = _convolution(%4, derived2)
%6 = nimble::pointwise(%5, extern0)
%7 = nimble::depthwise_convolution(%6, derived3, extern0)
%8 = sum(%7)
return %8
)");
}

TEST_F(PreciseConvolution, WhereOursAreFasterTheyAreTakenForFewChannelsAndAnyFilter) {
  expect_drawn(measured({{"nimble::matrix_convolution", 10}, {"aten::clone", 10}}), R"(
%0 = clone(input0)
%1 = nimble::matrix_convolution(%0, derived0, extern0)
%2 = nimble::matrix_convolution(%1, extern1, extern0)
%3 = nimble::matrix_convolution(%2, derived1, extern0, %1)
%4 = _convolution(%3, derived2, extern0)
%5 = nimble::depthwise_convolution(%4, derived3, extern0)
%6 = sum(%5)
return %6
)");
}

TEST_F(PreciseConvolution, WhatIsFastestAsItWasIsStillToldNotToRound) {
  expect_drawn(measured({{"nimble::matrix_convolution", 1000},
                         {"nimble::pointwise", 1000},
                         {"nimble::depthwise_convolution", 1000}}),
               R"(
%0 = _convolution(input0, derived0, extern0)
%1 = relu(%0)
%2 = _convolution(%1, extern1, extern0)
%3 = silu(%2)
%4 = _convolution(%3, derived1, extern0)
%5 = add(%4, %1)
%6 = relu(%5)
%7 = _convolution(%6, derived2, extern0)
%8 = _convolution(%7, extern2, extern0)
%9 = sum(%8)
return %9
)");
}

TEST_F(PreciseConvolution, SoAreThoseThatNoKernelOfOursIsFor) {
  const at::Tensor line = torch::randn({3, 3, 3}) / 3, back = torch::randn({3, 3, 3, 3}) / 5;
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::conv_transpose2d(in[0], back), at::conv1d(in[0].select(2, 0), line),
            at::conv2d(in[0], in[0].slice(2, 0, 3).slice(3, 0, 3))};
  };
  const Forced result = fused(function, image_, {.precise = true});
  EXPECT_EQ(operators(result.program), std::vector<std::string>(3, "aten::_convolution"));
  EXPECT_EQ(result.sites.size(), 3u);
  expect_precise(result, function, image_);
}

TEST_F(PreciseConvolution, NoWayThatMayRoundIsOffered) {
  const auto offered = [&](bool precise) {
    std::size_t may = 0;
    const auto consider = [&](std::span<const Task> tasks) { may += std::ranges::any_of(tasks, may_round); };
    const Program program = forced(network(), image_, kChannelsLast).program;
    kFuseConvolution.apply(program, {.device = c10::kCUDA, .precise = precise, .consider = consider});
    return may;
  };
  EXPECT_GT(offered(false), 0u);
  EXPECT_EQ(offered(true), 0u);
}

TEST_F(PreciseConvolution, HalfPrecisionIsAsItAlwaysIs) {
  const Tensors image = {image_[0].to(at::kBFloat16)};
  EXPECT_EQ(drawn(fused(network(), image, {.precise = true}).program),
            drawn(fused(network(), image, {}).program));
  EXPECT_NE(drawn(fused(network(), image_, {.precise = true}).program),
            drawn(fused(network(), image_, {}).program));
}

TEST_F(PreciseConvolution, ADepthwiseConvolutionBecomesPartOfAPreciseProduct) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = at::conv2d(in[0], depthwise_, {}, {1, 1}, {1, 1}, {1, 1}, 8);
    return {at::conv2d(x, one_, bias_).sum()};
  };
  const Tensors image = {torch::randn({1, 8, 9, 9}).contiguous(at::MemoryFormat::ChannelsLast)};
  const Forced result =
      forced(function, image, kSeparableConvolution, {&kChannelsLast, &kFuseConvolution}, {.precise = true});
  EXPECT_EQ(operators(result.program), (std::vector<std::string>{"nimble::matrix_convolution", "aten::sum"}));
  expect_precise(result, function, image);
}

}  // namespace
}  // namespace nimble
