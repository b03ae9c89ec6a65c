// Generated pointwise kernels, run on the host, against the calls of ATen that they stand for.
#include "nimble/kernels/pointwise_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nimble/core/error.h"
#include "nimble/kernels/element_source.h"
#include "tests/kernels/host_device.h"
#include "tests/kernels/run_expression.h"

namespace nimble::kernels {
namespace {

testing::Ran run_kernel(const std::string& text, const std::vector<at::Tensor>& inputs) {
  return testing::run_expression(pointwise_source, text, inputs);
}

// Equal bit by bit, NaN included.
void expect_equal(const std::string& text, const std::vector<at::Tensor>& inputs) {
  const auto expected = evaluate(parse_expression(text), inputs);
  const auto results = run_kernel(text, inputs).results;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(results[i].scalar_type(), expected[i].scalar_type()) << text;
    EXPECT_EQ(results[i].strides(), expected[i].strides()) << text;
    EXPECT_TRUE(at::allclose(results[i], expected[i], 0, 0, /*equal_nan=*/true))
        << text << "\n"
        << (results[i].to(at::kDouble) - expected[i].to(at::kDouble)).abs().max();
  }
}

// As near as two libraries' exponentials are.
void expect_close(const std::string& text, const std::vector<at::Tensor>& inputs) {
  const auto expected = evaluate(parse_expression(text), inputs);
  const auto results = run_kernel(text, inputs).results;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::allclose(results[i], expected[i], 1e-5, 1e-6, /*equal_nan=*/true)) << text;
  }
}

// A little more than the type's own.
double rounding_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 1e-14;
    case at::kFloat:
      return 1e-6;
    case at::kHalf:
      return 1e-3;
    default:
      return 8e-3;  // bfloat16
  }
}

const std::string kSumRelu = "%0 = add.Tensor(x0, x1, 1); %1 = relu(%0); return %1";

TEST(PointwiseTest, ChainsOfEveryTypeGiveAtensBits) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor a = at::randn({5, 64}).to(type), b = at::randn({5, 64}).to(type);
    expect_equal(
        "%0 = mul.Tensor(x0, x1); %1 = add.Tensor(%0, x0, 1); %2 = relu(%1); %3 = sub.Tensor(%2, x1, 1); "
        "%4 = clamp(%3, -0.5, 2.5); return %4",
        {a, b});
  }
}

TEST(PointwiseTest, ValuesAreRoundedBetweenStepsAsInMemory) {
  // In float16 the sum of 2048 and 1 is 2048 again, twice; in one go it would be 2050.
  const at::Tensor a = at::full({4}, 2048, at::kHalf), one = at::ones({4}, at::kHalf);
  const auto sum = run_kernel("%0 = add.Tensor(x0, x1, 1); %1 = add.Tensor(%0, x1, 1); return %1", {a, one});
  EXPECT_TRUE(at::equal(sum.results[0], a));
}

// Most kernels of ATen for a GPU compute in float and round once; these round after each operation, as here
// call by call.
TEST(PointwiseTest, SomeFunctionsRoundAfterEachOperation) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor a = at::randn({256}).to(type), b = at::rand({256}).to(type);
    const auto expect_bits = [&](const std::string& function, const at::Tensor& expected) {
      const auto result = run_kernel("%0 = " + function + "; %1 = neg(x1); return %0", {a, b}).results[0];
      EXPECT_TRUE(at::equal(result, expected)) << function << " of " << type;
    };
    expect_bits("pow.Tensor_Scalar(x0, 3)", a * a * a);
    expect_bits("pow.Tensor_Scalar(x0, -2)", (a * a).reciprocal());
    expect_bits("sigmoid_backward(x0, x1)", a * (1 - b) * b);
    expect_bits("tanh_backward(x0, x1)", a * (1 - b * b));
  }
}

TEST(PointwiseTest, NumbersAreRoundedToTheTypeThatTheyAreComparedIn) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = at::tensor({0.1, 0.3, -0.1, 0.0}).to(type);
    for (const char* compare : {"eq", "ne", "lt", "le", "gt", "ge"}) {
      expect_equal(std::string("%0 = ") + compare + ".Scalar(x0, 0.1); return %0", {x});
    }
    const auto passed = run_kernel("%0 = threshold_backward(x0, x0, 0.1); return %0", {x}).results[0];
    EXPECT_EQ(passed[0].item<float>(), 0) << type;
    expect_close("%0 = pow.Tensor_Scalar(x0, 2.7); return %0", {x.abs()});
  }
}

// The order of ATen's kernel for a GPU; that for a CPU has another.
TEST(PointwiseTest, AddcmulMultipliesItsTensorsFirst) {
  const at::Tensor a = at::randn({64}), b = at::randn({64}), c = at::randn({64});
  for (const float value : {0.9f, 1.0f}) {
    const auto text = "%0 = addcmul(x0, x1, x2, " + std::string(value == 1 ? "1" : "0.9") + "); return %0";
    const at::Tensor result = run_kernel(text, {a, b, c}).results[0];
    for (std::int64_t i = 0; i < 64; ++i) {
      const float x = a[i].item<float>(), y = b[i].item<float>(), z = c[i].item<float>();
      EXPECT_EQ(result[i].item<float>(), value == 1 ? std::fma(y, z, x) : std::fma(value, y * z, x));
    }
  }
}

TEST(PointwiseTest, TypesArePromotedAsAtenDoes) {
  const at::Tensor half = at::randn({3, 8}).to(at::kHalf), single = at::randn({3, 8}),
                   whole = at::arange(24).view({3, 8}), flag = single > 0;
  expect_equal(kSumRelu, {half, single});
  expect_equal(kSumRelu, {whole, half});
  expect_equal("%0 = mul.Tensor(x0, x1); return %0", {half, flag});
  expect_equal("%0 = mul.Scalar(x0, 0.1); return %0", {whole});
  expect_equal("%0 = mul.Scalar(x0, 3); return %0", {whole});
  expect_equal("%0 = div.Tensor(x0, x1); return %0", {whole, at::full({8}, 4)});
  expect_equal("%0 = gt.Tensor(x0, x1); %1 = where.self(%0, x0, x1); return %1, %0", {half, single});
  expect_equal("%0 = le.Scalar(x0, 7.5); %1 = masked_fill.Scalar(x1, %0, -inf); return %1", {whole, single});
}

TEST(PointwiseTest, CastsRoundAsAtenDoes) {
  const at::Tensor single = at::cat({at::randn({61}) * 1e4, at::tensor({1e30f, 1e-30f, NAN})}),
                   whole = at::arange(64) - 32;
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const std::string cast = "%0 = _to_copy(x0, " + std::to_string(static_cast<int>(type)) +
                             ", none, none, none, false, none); %1 = neg(%0); return %1";
    for (const at::Tensor& x : {single, single.to(at::kHalf), single.to(at::kDouble), whole, single > 0}) {
      expect_equal(cast, {x});
    }
  }
}

TEST(PointwiseTest, NumbersWithoutADimensionDoNotPromote) {
  expect_equal(kSumRelu, {at::randn({3, 8}).to(at::kHalf), at::scalar_tensor(0.3)});
}

TEST(PointwiseTest, NanPassesThrough) {
  const at::Tensor a = at::tensor({NAN, -1.0f, 0.0f, 1.0f, INFINITY, -INFINITY}), b = a.flip(0);
  expect_equal("%0 = relu(x0); return %0", {a});
  expect_equal("%0 = clamp(x0, -0.5, 0.5); return %0", {a});
  expect_equal("%0 = hardtanh(x0, 0, 6); return %0", {a});
  expect_equal("%0 = maximum(x0, x1); %1 = minimum(x0, x1); return %0, %1", {a, b});
  expect_equal("%0 = threshold_backward(x0, x1, 0); return %0", {a, b});
  expect_equal("%0 = hardtanh_backward(x0, x1, -1, 1); return %0", {a, b});
}

TEST(PointwiseTest, NothingGoesBackFromALimitOrBeyond) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = at::tensor({-1.0, 0.0, 0.1, 3.0, 6.0, 7.0}).to(type),
                     gradient = at::ones_like(x) * 3;
    const auto back = run_kernel("%0 = hardtanh_backward(x0, x1, 0, 6); return %0", {gradient, x}).results[0];
    EXPECT_TRUE(at::equal(back, at::tensor({0, 0, 3, 3, 0, 0}).to(type))) << type;
  }
}

// Smooth ones, their corners, and far away.
TEST(PointwiseTest, TheWaysBackThroughActivations) {
  const at::Tensor corners = at::tensor({-3.0, 3.0, 0.0, -0.0, -100.0, 100.0, -2.5});
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = at::cat({corners, at::randn({193}) * 3}).to(type),
                     gradient = (at::randn({200}) + 2).to(type);
    for (const std::string call : {"silu_backward(x0, x1)", "gelu_backward(x0, x1, 'none')",
                                   "gelu_backward(x0, x1, 'tanh')", "hardsigmoid_backward(x0, x1)",
                                   "hardswish_backward(x0, x1)", "leaky_relu_backward(x0, x1, 0.1, false)"}) {
      const std::string text = "%0 = " + call + "; return %0";
      const at::Tensor given = run_kernel(text, {gradient, x}).results[0],
                       exact =
                           evaluate(parse_expression(text), {gradient.to(at::kDouble), x.to(at::kDouble)})[0];
      const double rounding = rounding_of(type);
      EXPECT_EQ(given.scalar_type(), type);
      EXPECT_TRUE(at::allclose(given.to(at::kDouble), exact, rounding, 4 * rounding, /*equal_nan=*/true))
          << call << " of " << type << "\n"
          << (given.to(at::kDouble) - exact).abs().nan_to_num().max();
    }
  }
}

TEST(PointwiseTest, LossesOfEachElement) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor a = at::randn({100}).to(type), b = at::randn({100}).to(type);
    for (const std::string call : {"smooth_l1_loss(x0, x1, 0, 0.5)", "smooth_l1_loss(x0, x1, 0, 0.0)",
                                   "huber_loss(x0, x1, 0, 1.5)", "sgn(x0)", "log1p(x1)"}) {
      const std::string text = "%0 = " + call + "; %1 = sub.Tensor(x0, x1, 1); return %0, %1";
      const at::Tensor given = run_kernel(text, {a, b}).results[0],
                       exact = evaluate(parse_expression(text), {a.to(at::kDouble), b.to(at::kDouble)})[0];
      const double rounding = rounding_of(type);
      EXPECT_TRUE(at::allclose(given.to(at::kDouble), exact, rounding, rounding, /*equal_nan=*/true))
          << call << " of " << type;
    }
  }
}

TEST(PointwiseTest, LossesThatAreSummedHaveNoPointwiseKernel) {
  for (const std::string loss :
       {"mse_loss(x0, x1, 1)", "smooth_l1_loss(x0, x1, 1, 1)", "huber_loss(x0, x1, 2, 1)"}) {
    EXPECT_FALSE(has_kernel(parse_expression("%0 = " + loss + "; return %0").steps[0])) << loss;
  }
}

TEST(PointwiseTest, ExactAreThoseThatRoundOnceAtMost) {
  const auto is_exact = [](const std::string& call) {
    return has_exact_kernel(parse_expression("%0 = " + call + "; return %0").steps[0]);
  };
  for (const char* exact :
       {"relu(x0)", "neg(x0)", "abs(x0)", "add.Tensor(x0, x1, 1)", "add.Scalar(x0, 0.3, 1)",
        "sub.Tensor(x0, x1, 1.0)", "mul.Tensor(x0, x1)", "mul.Scalar(x0, 0.3)", "div.Scalar(x0, 3)",
        "clamp(x0, none, 1)", "hardtanh(x0, 0, 6)", "maximum(x0, x1)", "gt.Scalar(x0, 0.1)",
        "where.self(x0, x1, x2)", "threshold_backward(x0, x1, 0)", "hardtanh_backward(x0, x1, 0, 6)",
        "_to_copy(x0, 5, none, none, none, false, none)"}) {
    EXPECT_TRUE(is_exact(exact)) << exact;
  }
  for (const char* inexact : {"exp(x0)",
                              "sigmoid(x0)",
                              "gelu(x0, 'none')",
                              "silu(x0)",
                              "rsqrt(x0)",
                              "reciprocal(x0)",
                              "add.Tensor(x0, x1, 0.5)",
                              "add.Tensor(x0, x1, -1)",
                              "sub.Scalar(x0, 1, 2)",
                              "addcmul(x0, x1, x2, 1)",
                              "pow.Tensor_Scalar(x0, 3)",
                              "sigmoid_backward(x0, x1)",
                              "tanh_backward(x0, x1)",
                              "hardswish(x0)",
                              "silu_backward(x0, x1)",
                              "gelu_backward(x0, x1, 'none')",
                              "huber_loss(x0, x1, 0, 1)",
                              "_to_copy(x0, 3, none, none, none, false, none)",
                              "cumsum(x0, 1, none)",
                              "clamp(x0, nan, none)"}) {
    EXPECT_FALSE(is_exact(inexact)) << inexact;
  }
}

TEST(PointwiseTest, EverythingBroadcasts) {
  const at::Tensor x = at::randn({2, 8, 5, 4});
  for (const at::IntArrayRef shape : std::vector<std::vector<std::int64_t>>{
           {1}, {4}, {5, 4}, {8, 1, 1}, {1, 8, 1, 1}, {2, 1, 5, 1}, {2, 8, 5, 4}, {1, 1, 5, 1}}) {
    expect_equal(kSumRelu, {x, at::randn(shape)});
    expect_equal(kSumRelu, {at::randn(shape), x});
    expect_equal(kSumRelu, {x.contiguous(at::MemoryFormat::ChannelsLast), at::randn(shape)});
  }
  expect_equal(kSumRelu, {at::randn({6, 1}), at::randn({1, 7})});
}

TEST(PointwiseTest, AnyStridesAreRead) {
  const at::Tensor x = at::randn({6, 8, 10});
  expect_equal(kSumRelu, {x.transpose(0, 2), at::randn({10, 8, 6})});
  expect_equal(kSumRelu, {x.slice(2, 1, 9, 2), at::randn({6, 8, 4})});
  expect_equal(kSumRelu, {x.slice(1, 1, 7), x.slice(1, 2, 8)});
  expect_equal(kSumRelu,
               {at::randn({1, 8, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast), at::randn({1, 8, 6, 6})});
}

TEST(PointwiseTest, SlicesAreWrittenInPlaceAsWideAsTheyAreAligned) {
  const Expression expression = parse_expression(kSumRelu);
  const at::Tensor x = at::randn({1, 64, 64, 32}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto steps = evaluate_steps(expression, {testing::without_memory(x), testing::without_memory(x)});
  for (const auto& [first, width] :
       std::vector<std::pair<std::int64_t, std::string>>{{0, "4"}, {4, "4"}, {6, "2"}, {7, "1"}}) {
    const at::Tensor whole = at::full({1, 80, 64, 32}, 12345.0f).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor place = whole.slice(1, first, first + 64);
    const KernelSource kernel = pointwise_source(expression, {x, x}, steps, {place});
    testing::run_on_host(kernel, {x, x, place});
    EXPECT_NE(kernel.text.find("Vector<float, " + width + "> r0"), std::string::npos) << first;
    EXPECT_TRUE(at::equal(place, at::relu(x + x))) << first;
    EXPECT_EQ((whole == 12345.0f).sum().item<std::int64_t>(), 16 * 64 * 32) << first;
  }
}

TEST(PointwiseTest, OneResultMayGoIntoASliceAndAnotherElsewhere) {
  const Expression expression = parse_expression("%0 = add.Tensor(x0, x1, 1); %1 = relu(%0); return %0, %1");
  const at::Tensor x = at::randn({1, 64, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto steps = evaluate_steps(expression, {testing::without_memory(x), testing::without_memory(x)});
  for (const std::int64_t first : {0, 4, 7}) {
    const at::Tensor whole = at::full({1, 80, 8, 8}, 12345.0f).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor place = whole.slice(1, first, first + 64), sum = at::empty_like(x);
    testing::run_on_host(pointwise_source(expression, {x, x}, steps, {sum, place}), {x, x, sum, place});
    EXPECT_TRUE(at::equal(sum, x + x)) << first;
    EXPECT_TRUE(at::equal(place, at::relu(x + x))) << first;
    EXPECT_EQ((whole == 12345.0f).sum().item<std::int64_t>(), 16 * 8 * 8) << first;
  }
}

TEST(PointwiseTest, OddSizesAndSingleElements) {
  for (const std::int64_t size : {1, 2, 3, 7, 63, 64, 65, 127, 1001}) {
    expect_equal(kSumRelu, {at::randn({size}), at::randn({size})});
  }
  expect_equal(kSumRelu, {at::randn({}), at::randn({})});
}

TEST(PointwiseTest, WideWorkIsVectorised) {
  const at::Tensor x = at::randn({1 << 17}), bias = at::randn({64});
  const auto flat = run_kernel(kSumRelu, {x, x});
  EXPECT_NE(flat.kernel.text.find("load<4>(p0"), std::string::npos);
  EXPECT_TRUE(at::equal(flat.results[0], at::relu(x + x)));
  const at::Tensor image = at::randn({1, 64, 64, 32}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto biased = run_kernel(kSumRelu, {image, bias.view({64, 1, 1})});
  EXPECT_NE(biased.kernel.text.find("load<4>(p1"), std::string::npos);
  EXPECT_TRUE(at::equal(biased.results[0], at::relu(image + bias.view({64, 1, 1}))));
  const auto shifted = run_kernel(kSumRelu, {x.slice(0, 1), x.slice(0, 1)});
  EXPECT_NE(shifted.kernel.text.find("load<1>(p0"), std::string::npos) << "not aligned";
  EXPECT_TRUE(at::equal(shifted.results[0], at::relu(x + x).slice(0, 1)));
}

TEST(PointwiseTest, SeveralResultsAndInputsAsResults) {
  expect_equal("%0 = add.Tensor(x0, x1, 1); %1 = relu(%0); return %0, %1, x0",
               {at::randn({4, 8}), at::randn({4, 8})});
}

TEST(PointwiseTest, EveryFunctionIsAtens) {
  const at::Tensor x = at::cat({at::randn({60}) * 3, at::tensor({0.0f, -0.0f, 1e-6f, 80.0f})}),
                   y = at::randn({64});
  for (const char* function : {"neg", "abs", "floor", "ceil", "reciprocal"}) {
    expect_equal(std::string("%0 = ") + function + "(x0); return %0", {x});
  }
  for (const char* function : {"exp", "log", "sqrt", "rsqrt", "erf", "sin", "cos", "tanh", "sigmoid", "silu",
                               "hardsigmoid", "hardswish"}) {
    expect_close(std::string("%0 = ") + function + "(x0); return %0", {x});
  }
  expect_close("%0 = gelu(x0, 'none'); %1 = gelu(x0, 'tanh'); return %0, %1", {x});
  expect_equal("%0 = leaky_relu(x0, 0.01); return %0", {x});
  expect_equal("%0 = clamp(x0, none, 0.5); %1 = clamp(x0, 0.25, none); return %0, %1", {x});
  expect_equal("%0 = clamp_min(x0, 0.5); %1 = clamp_max(x0, 0.25); return %0, %1", {x});
  expect_equal(
      "%0 = rsub.Scalar(x0, 1, 1); %1 = div.Scalar(x0, 4.0); %2 = sub.Scalar(x0, 0.5, 1); return %0, %1, %2",
      {x});
  expect_close(
      "%0 = add.Tensor(x0, x1, 0.3); %1 = addcmul(x0, x1, x1, 0.7); %2 = addcdiv(x0, x1, x1, 0.7); "
      "return %0, %1, %2",
      {x, y});
  expect_close(
      "%0 = pow.Tensor_Scalar(x0, 2); %1 = pow.Tensor_Scalar(x0, 3.0); %2 = pow.Tensor_Scalar(x0, 0.5); "
      "%3 = pow.Tensor_Scalar(x0, 2.5); return %0, %1, %2, %3",
      {x});
  for (const char* comparison : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    expect_equal(std::string("%0 = ") + comparison + ".Tensor(x0, x1); return %0", {x, y});
  }
  expect_close("%0 = sigmoid_backward(x0, x1); %1 = tanh_backward(x0, x1); return %0, %1", {x, y});
}

TEST(PointwiseTest, WhatNoKernelHandlesIsTold) {
  EXPECT_FALSE(has_kernel({"cumsum", {input(0), c10::IValue(0)}}));
  EXPECT_TRUE(has_kernel({"relu", {input(0)}}));
  EXPECT_THROW(run_kernel("%0 = relu(x0); %1 = relu(x1); return %0, %1", {at::randn({4}), at::randn({5})}),
               InvalidInput);
}

}  // namespace
}  // namespace nimble::kernels
