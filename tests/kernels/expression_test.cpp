#include "nimble/kernels/expression.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "nimble/core/error.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

Expression sum_then_relu() {
  return {2, {{"add.Tensor", {input(0), input(1), c10::IValue(1)}}, {"relu", {step(0)}}}, {step(1)}};
}

TEST(ExpressionTest, PrintsOneStepAfterTheOther) {
  EXPECT_EQ(to_string(sum_then_relu()), "%0 = add.Tensor(x0, x1, 1); %1 = relu(%0); return %1");
}

TEST(ExpressionTest, ReadsWhatItPrints) {
  const auto infinity = std::numeric_limits<double>::infinity();
  const Expression all_kinds = {
      3,
      {{"clamp", {input(2), c10::IValue(-infinity), c10::IValue()}},
       {"gelu", {step(0), c10::IValue("tanh")}},
       {"mul.Scalar", {step(1), c10::IValue(0.1)}},
       {"mul.Scalar", {step(2), c10::IValue(2.0)}},
       {"add.Scalar", {step(3), c10::IValue(-3), c10::IValue(true)}},
       {"native_layer_norm",
        {step(4), c10::IValue(std::vector<std::int64_t>{3, 4}), c10::IValue(), c10::IValue(),
         c10::IValue(0.5)}}},
      {step(5), step(1), input(0)},
  };
  const std::string text = to_string(all_kinds);
  EXPECT_EQ(text,
            "%0 = clamp(x2, -inf, none); %1 = gelu(%0, 'tanh'); %2 = mul.Scalar(%1, 0.1); "
            "%3 = mul.Scalar(%2, 2.0); %4 = add.Scalar(%3, -3, true); "
            "%5 = native_layer_norm(%4, [3, 4], none, none, 0.5); return %5, %1, x0");
  EXPECT_EQ(to_string(parse_expression(text)), text);
  EXPECT_EQ(parse_expression(text).inputs, 3u);
}

TEST(ExpressionTest, EveryTextThatIsNoneIsRefused) {
  const std::string whole = to_string(sum_then_relu());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(parse_expression(whole.substr(0, length)), InvalidInput) << whole.substr(0, length);
  }
  for (const char* wrong :
       {"%1 = relu(x0); return %1", "%0 = relu(%0); return %0", "%0 = relu(x0); return %1",
        "%0 = relu(x0; return %0", "%0 = add.Scalar(x0, two, 1); return %0",
        "%0 = relu(x0); return %0 and more", "%0 = native_layer_norm(x0, [3, none, none, 1.0); return %0",
        "%0 = native_layer_norm(x0, [x0], none, none, 1.0); return %0",
        "%0 = relu(x99999999999); return %0"}) {
    EXPECT_THROW(parse_expression(wrong), InvalidInput) << wrong;
  }
}

TEST(ExpressionTest, MeansWhatAtensCallsMean) {
  const at::Tensor a = at::randn({3, 4}), b = at::randn({4});
  EXPECT_TRUE(at::equal(evaluate(sum_then_relu(), {a, b})[0], at::relu(a + b)));
}

TEST(ExpressionTest, OnMetaTensorsItTellsTypesAndLayouts) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor a =
      at::empty({2, 8, 4, 4}, meta.dtype(at::kHalf).memory_format(at::MemoryFormat::ChannelsLast));
  const at::Tensor b = at::empty({8, 1, 1}, meta.dtype(at::kFloat));
  const auto steps = evaluate_steps(sum_then_relu(), {a, b});
  EXPECT_EQ(steps[1].scalar_type(), at::kFloat);
  EXPECT_EQ(steps[1].strides(), a.strides());
}

TEST(ExpressionTest, AWrongCallIsRefusedByName) {
  const at::Tensor a = at::randn({3});
  EXPECT_THROW(evaluate(parse_expression("%0 = no_such_thing(x0); return %0"), {a}), InvalidInput);
  EXPECT_THROW(evaluate(parse_expression("%0 = add.Tensor(x0, x0); return %0"), {a}), InvalidInput);
  EXPECT_THROW(evaluate(sum_then_relu(), {a}), InvalidInput);
}

TEST(ExpressionTest, IsAnOperatorOnAnyDevice) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("nimble::pointwise", "");
  const at::Tensor a = at::randn({3, 4}), b = at::randn({4});
  torch::jit::Stack stack = {c10::List<at::Tensor>({a, b}), to_string(sum_then_relu())};
  op.callBoxed(&stack);
  EXPECT_TRUE(at::equal(stack[0].toTensorVector()[0], at::relu(a + b)));
}

}  // namespace
}  // namespace nimble::kernels
