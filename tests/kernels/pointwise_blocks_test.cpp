// Loops over blocks for CPUs, against the calls of ATen that they stand for.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "nimble/kernels/cpu/block_program.h"
#include "nimble/kernels/expression.h"
#include "nimble/torch/operator_facts.h"

namespace nimble::kernels {
namespace {

constexpr std::int64_t kBlock = BlockProgram::kBlock;

std::vector<at::Tensor> pointwise_blocks(const std::string& text, const std::vector<at::Tensor>& inputs) {
  static const auto op = find_operator("nimble::pointwise_blocks")
                             .typed<std::vector<at::Tensor>(at::TensorList, std::string_view)>();
  return op.call(inputs, text);
}

// As near as libraries are to each other: ATen's own gelu is 1.2e-6 off.
void expect_close(const std::string& text, const std::vector<at::Tensor>& inputs) {
  const auto expected = evaluate(parse_expression(text), inputs);
  const auto results = pointwise_blocks(text, inputs);
  ASSERT_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(results[i].sizes(), expected[i].sizes()) << text;
    EXPECT_EQ(results[i].scalar_type(), expected[i].scalar_type()) << text;
    EXPECT_TRUE(at::allclose(results[i], expected[i], 1e-5, 4e-6, /*equal_nan=*/true)) << text;
  }
}

const std::string kChain = "%0 = mul.Tensor(x0, x1); %1 = add.Tensor(%0, x0, 1); %2 = relu(%1); return %2";

// NaN, infinities, zeros of both signs, what is too small for a normal number, and ordinary ones.
at::Tensor all_kinds() {
  const float tiny = std::numeric_limits<float>::denorm_min(), large = std::numeric_limits<float>::max();
  return at::cat(
      {at::tensor({NAN, INFINITY, -INFINITY, 0.0f, -0.0f, tiny, -tiny, large, -large, 88.8f, -88.8f}),
       at::randn({600}) * 4});
}

TEST(PointwiseBlocks, EveryFunctionIsAtens) {
  const std::vector<std::string> of_one = {"relu(x0)",
                                           "neg(x0)",
                                           "abs(x0)",
                                           "exp(x0)",
                                           "log(x0)",
                                           "sqrt(x0)",
                                           "rsqrt(x0)",
                                           "reciprocal(x0)",
                                           "erf(x0)",
                                           "floor(x0)",
                                           "ceil(x0)",
                                           "tanh(x0)",
                                           "sigmoid(x0)",
                                           "silu(x0)",
                                           "hardsigmoid(x0)",
                                           "hardswish(x0)",
                                           "relu6(x0)",
                                           "leaky_relu(x0, 0.1)",
                                           "clamp(x0, -1, 2)",
                                           "clamp(x0, none, 2)",
                                           "clamp_min(x0, 0.5)",
                                           "clamp_max(x0, 0.5)",
                                           "hardtanh(x0, -2, 2)",
                                           "add.Scalar(x0, 3, 2)",
                                           "sub.Scalar(x0, 3, 2)",
                                           "rsub.Scalar(x0, 3, 2)",
                                           "mul.Scalar(x0, 0.3)",
                                           "div.Scalar(x0, 3)",
                                           "pow.Tensor_Scalar(x0, 2)",
                                           "pow.Tensor_Scalar(x0, 3)",
                                           "pow.Tensor_Scalar(x0, -2)",
                                           "pow.Tensor_Scalar(x0, 0.5)",
                                           "pow.Tensor_Scalar(x0, 1)",
                                           "pow.Tensor_Scalar(x0, 1.7)"};
  for (const std::string& call : of_one) {
    SCOPED_TRACE(call);
    const std::string text = "%0 = " + call + "; return %0";
    ASSERT_TRUE(BlockProgram::from(parse_expression(text)));
    expect_close(text, {all_kinds()});
  }
  // Far from zero libraries differ: oneDNN's gelu of infinity is no number.
  for (const std::string call : {"sin(x0)", "cos(x0)", "gelu(x0, 'none')", "gelu(x0, 'tanh')"}) {
    expect_close("%0 = " + call + "; return %0", {at::cat({at::tensor({NAN}), at::randn({600}) * 4})});
  }
}

TEST(PointwiseBlocks, EveryFunctionOfSeveralIsAtens) {
  const at::Tensor a = all_kinds(), b = a.roll(7), c = a.roll(13);
  for (const std::string call : {"add.Tensor(x0, x1, 1)", "add.Tensor(x0, x1, 0.5)", "sub.Tensor(x0, x1, 1)",
                                 "sub.Tensor(x0, x1, 2)", "mul.Tensor(x0, x1)", "div.Tensor(x0, x1)",
                                 "maximum(x0, x1)", "minimum(x0, x1)", "pow.Tensor_Tensor(x0, x1)"}) {
    SCOPED_TRACE(call);
    ASSERT_TRUE(BlockProgram::from(parse_expression("%0 = " + call + "; return %0")));
    expect_close("%0 = " + call + "; return %0", {a, b});
  }
  for (const std::string call : {"addcmul(x0, x1, x2, 0.5)", "addcdiv(x0, x1, x2, 0.5)"}) {
    expect_close("%0 = " + call + "; return %0", {at::randn({700}), at::randn({700}), at::randn({700}) + 3});
  }
}

TEST(PointwiseBlocks, TheSameOnEveryKindOfProcessor) {
#ifdef __x86_64__
  std::vector<const NamedBlockFunction*> others;
  if (__builtin_cpu_supports("x86-64-v3")) others.push_back(avx2::block_functions);
  if (__builtin_cpu_supports("x86-64-v4")) others.push_back(avx512::block_functions);
  const at::Tensor a = all_kinds(), b = a.roll(7).contiguous(), c = a.roll(13).contiguous();
  const at::Tensor d = a.roll(17).contiguous();
  const float* in[] = {a.const_data_ptr<float>(), b.const_data_ptr<float>(), c.const_data_ptr<float>(),
                       d.const_data_ptr<float>()};
  for (const NamedBlockFunction* other : others) {
    for (const auto* known = baseline::block_functions; known->name; ++known, ++other) {
      ASSERT_STREQ(known->name, other->name);
      at::Tensor expected = at::empty_like(a), given = at::empty_like(a);
      known->run(expected.mutable_data_ptr<float>(), in, a.numel());
      other->run(given.mutable_data_ptr<float>(), in, a.numel());
      EXPECT_TRUE(at::allclose(given, expected, 1e-5, 1e-6, /*equal_nan=*/true)) << known->name;
    }
    EXPECT_EQ(other->name, nullptr);
  }
#endif
}

TEST(PointwiseBlocks, BlocksEndWhereTensorsDo) {
  for (const std::int64_t size : {1L, 7L, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 5, 100'003L}) {
    expect_close(kChain, {at::randn({size}), at::randn({size})});
  }
  expect_close(kChain, {at::randn({0, 3}), at::randn({0, 3})});
  expect_close(kChain, {at::randn({}), at::randn({})});
}

TEST(PointwiseBlocks, LayoutsAndBroadcasts) {
  const auto last = at::MemoryFormat::ChannelsLast;
  const at::Tensor image = at::randn({2, 12, 9, 9}), other = at::randn({2, 12, 9, 9}).contiguous(last);
  const std::vector<at::Tensor> beside = {other,
                                          image,
                                          at::randn({12, 1, 1}),
                                          at::randn({2, 12, 1, 1}),
                                          at::randn({9}),
                                          at::randn({9, 1}),
                                          at::randn({}),
                                          at::randn({2, 24, 9, 9}).slice(1, 0, 24, 2),
                                          at::randn({9, 9, 12, 2}).permute({3, 2, 1, 0}),
                                          at::randn({1, 12, 1, 9}).expand({2, 12, 9, 9})};
  for (const at::Tensor& x : {image, other, image.slice(3, 1, 8), at::randn({1, 1, 9, 9})}) {
    for (const at::Tensor& y : beside) {
      const bool fits = x.size(3) == 9 || y.dim() == 0 || y.size(-1) == 1;
      if (fits) expect_close(kChain, {x, y});
    }
  }
  expect_close(kChain, {at::randn({3, 700, 5}), at::randn({700, 1})});  // rows longer than a block
  expect_close(kChain, {at::randn({900, 40}), at::randn({40})});
  EXPECT_TRUE(pointwise_blocks(kChain, {other, at::randn({12, 1, 1})})[0].is_contiguous(last));
}

TEST(PointwiseBlocks, SeveralResultsAndValuesThatAreReadAgain) {
  const std::string text =
      "%0 = exp(x0); %1 = add.Tensor(%0, x1, 1); %2 = mul.Tensor(%1, %0); %3 = sub.Tensor(%2, %1, 1); "
      "return %1, %3, %0";
  EXPECT_TRUE(BlockProgram::from(parse_expression(text)));
  for (const std::int64_t size : {5L, kBlock, 3 * kBlock + 5, 100'003L}) {
    expect_close(text, {at::randn({size}), at::randn({size})});
  }
  expect_close(text, {at::randn({2, 12, 9, 9}).contiguous(at::MemoryFormat::ChannelsLast), at::randn({9})});
}

TEST(PointwiseBlocks, AResultThatIsSmallerThanAnotherIsLeftToAten) {
  const std::string text = "%0 = exp(x0); %1 = add.Tensor(%0, x1, 1); return %0, %1";
  EXPECT_TRUE(BlockProgram::from(parse_expression(text)));
  expect_close(text, {at::randn({3, 1}), at::randn({5})});
  expect_close("%0 = exp(x0); %1 = add.Tensor(%0, x1, 1); return %0", {at::randn({3, 1}), at::randn({5})});
}

TEST(PointwiseBlocks, ResultsThatAreInputsOrThereTwiceAreLeftToAten) {
  const std::vector<at::Tensor> inputs = {at::randn({3, 1}), at::randn({5})};
  for (const std::string results : {"%1, %1", "x0", "%1, x1"}) {
    const std::string text = "%0 = exp(x0); %1 = add.Tensor(%0, x1, 1); return " + results;
    EXPECT_FALSE(BlockProgram::from(parse_expression(text))) << text;
    expect_close(text, inputs);
  }
}

TEST(PointwiseBlocks, MoreStepsThanBlocks) {
  std::string text = "%0 = sigmoid(x0); ";
  for (int i = 1; i < 30; ++i) {
    text += "%" + std::to_string(i) + " = add.Tensor(%" + std::to_string(i - 1) + ", x0, 1); ";
  }
  ASSERT_TRUE(BlockProgram::from(parse_expression(text + "return %29")));
  expect_close(text + "return %29", {at::randn({1000})});
}

TEST(PointwiseBlocks, WhatNeedsTooMuchAtOnceOrOtherTypesIsLeftToAten) {
  std::string text, sum = "%0";
  for (int i = 0; i < 30; ++i)
    text += "%" + std::to_string(i) + " = mul.Scalar(x0, " + std::to_string(i) + "); ";
  for (int i = 30; i < 59; ++i) {
    text += "%" + std::to_string(i) + " = add.Tensor(" + sum + ", %" + std::to_string(i - 29) + ", 1); ";
    sum = "%" + std::to_string(i);
  }
  EXPECT_FALSE(BlockProgram::from(parse_expression(text + "return %58")));
  expect_close(text + "return %58", {at::randn({1000})});
  expect_close(kChain, {at::randn({1000}, at::kDouble), at::randn({1000})});
  expect_close(kChain, {at::ones({1000}, at::kHalf), at::ones({1000}, at::kHalf)});
  expect_close("%0 = gt.Scalar(x0, 0); return %0", {at::randn({1000})});
}

// Chains and trees of all functions on random shapes, each operand of which may be broadcast.
TEST(PointwiseBlocks, RandomExpressions) {
  std::mt19937 random(5);
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::vector<std::string> one = {"relu(A)",         "sigmoid(A)",     "tanh(A)",
                                        "silu(A)",         "hardswish(A)",   "mul.Scalar(A, 0.7)",
                                        "clamp(A, -2, 2)", "gelu(A, 'none')"};
  const std::vector<std::string> two = {"add.Tensor(A, B, 1)", "sub.Tensor(A, B, 1)", "mul.Tensor(A, B)",
                                        "maximum(A, B)", "add.Tensor(A, B, 0.5)"};
  for (int round = 0; round < 60; ++round) {
    std::vector<at::Tensor> inputs = {at::randn({4, 6, 11, 13})};
    if (below(2)) inputs[0] = inputs[0].contiguous(at::MemoryFormat::ChannelsLast);
    for (std::size_t i = 1 + below(3); i > 0; --i) {
      std::vector<std::int64_t> shape = {4, 6, 11, 13};
      for (auto& size : shape) size = below(3) ? size : 1;
      inputs.push_back(at::randn(shape));
    }
    std::vector<std::string> values;
    for (std::size_t i = 0; i < inputs.size(); ++i) values.push_back("x" + std::to_string(i));
    std::string text;
    const std::size_t steps = 2 + below(9);
    for (std::size_t s = 0; s < steps; ++s) {
      std::string call = below(2) ? one[below(one.size())] : two[below(two.size())];
      // The first has every element, so that all steps do.
      call.replace(call.find('A'), 1, s == 0 ? "x0" : "%" + std::to_string(s - 1));
      if (const auto b = call.find('B'); b != call.npos) call.replace(b, 1, values[below(values.size())]);
      values.push_back("%" + std::to_string(s));
      text += values.back() + " = " + call + "; ";
    }
    text += "return " + values.back();
    inputs.resize(parse_expression(text).inputs);  // without those that came last and are not read
    expect_close(text, inputs);
  }
}

}  // namespace
}  // namespace nimble::kernels
