#include "nimble/torch/run_in_double.h"

#include "rewritten.h"

namespace nimble {
namespace {

using RunInDouble = RewriteTest;

TEST_F(RunInDouble, ComputesWhatAFloat64ModelComputes) {
  const at::Tensor weight = torch::randn({6, 4}).to(at::kBFloat16);
  const auto model = [](const at::Tensor& x, const at::Tensor& w) {
    return at::linear(x, w).relu_().softmax(1);
  };
  const Tensors inputs = {torch::randn({3, 4}).to(at::kBFloat16)};
  const Program program =
      record(inputs, [&](const Tensors& in) -> Tensors { return {model(in[0], weight)}; });
  const Tensors wide = run_in_double(program, inputs);
  ASSERT_EQ(wide.size(), 1u);
  EXPECT_TRUE(at::allclose(wide[0], model(inputs[0].to(at::kDouble), weight.to(at::kDouble)), 1e-12, 1e-12));
}

TEST_F(RunInDouble, CastsInsideBecomeFloat64) {
  const Tensors inputs = {torch::rand({5})};
  const Program program =
      record(inputs, [](const Tensors& in) -> Tensors { return {in[0].to(at::kHalf).exp()}; });
  EXPECT_TRUE(at::allclose(run_in_double(program, inputs)[0], inputs[0].to(at::kDouble).exp(), 1e-12, 1e-12));
}

TEST_F(RunInDouble, ChangesNothingOutside) {
  const at::Tensor counter = torch::zeros({2}), number = torch::zeros({2}, at::kLong);
  const Tensors inputs = {torch::ones({2})};
  const Program program = record(inputs, [&](const Tensors& in) -> Tensors {
    counter.add_(in[0]);
    number.add_(1);
    in[0].neg_();
    return {counter + number};
  });
  counter.zero_();
  number.zero_();
  const at::Tensor argument = inputs[0].clone();
  EXPECT_EQ(run_in_double(program, inputs).size(), 1u);
  EXPECT_TRUE(at::equal(counter, torch::zeros({2})));
  EXPECT_TRUE(at::equal(number, torch::zeros({2}, at::kLong)));
  EXPECT_TRUE(at::equal(inputs[0], argument));
}

TEST_F(RunInDouble, RefusesRandomNumbersAndBuffersOfTwoTypes) {
  const Tensors inputs = {torch::rand({4})};
  EXPECT_TRUE(
      run_in_double(record(inputs, [](const Tensors& in) -> Tensors { return {in[0] + torch::rand({4})}; }),
                    inputs)
          .empty());
  EXPECT_TRUE(
      run_in_double(
          record(inputs, [](const Tensors& in) -> Tensors { return {in[0].exp().view(at::kInt) + 1}; }),
          inputs)
          .empty());
}

}  // namespace
}  // namespace nimble
