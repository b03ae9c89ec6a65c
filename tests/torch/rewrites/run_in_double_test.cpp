#include "nimble/torch/run_in_double.h"

#include "rewritten.h"

namespace nimble {
namespace {

using RunInDoubleTest = RewriteTest;

TEST_F(RunInDoubleTest, ComputesWhatAFloat64ModelComputes) {
  const at::Tensor weight = torch::randn({6, 4}).to(at::kBFloat16);
  const auto model = [](const at::Tensor& x, const at::Tensor& w) {
    return at::linear(x, w).relu_().softmax(1);
  };
  const Tensors inputs = {torch::randn({3, 4}).to(at::kBFloat16)};
  const Program program =
      record(inputs, [&](const Tensors& in) -> Tensors { return {model(in[0], weight)}; });
  const auto wide = run_in_double(program, inputs);
  ASSERT_TRUE(wide);
  EXPECT_TRUE(at::allclose(wide->results.at(0), model(inputs[0].to(at::kDouble), weight.to(at::kDouble)),
                           1e-12, 1e-12));
}

TEST_F(RunInDoubleTest, CastsInsideBecomeFloat64) {
  const Tensors inputs = {torch::rand({5})};
  const Program program =
      record(inputs, [](const Tensors& in) -> Tensors { return {in[0].to(at::kHalf).exp()}; });
  EXPECT_TRUE(at::allclose(run_in_double(program, inputs)->results.at(0), inputs[0].to(at::kDouble).exp(),
                           1e-12, 1e-12));
}

TEST_F(RunInDoubleTest, ChangesNothingOutside) {
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
  EXPECT_EQ(run_in_double(program, inputs)->results.size(), 1u);
  EXPECT_TRUE(at::equal(counter, torch::zeros({2})));
  EXPECT_TRUE(at::equal(number, torch::zeros({2}, at::kLong)));
  EXPECT_TRUE(at::equal(inputs[0], argument));
}

TEST_F(RunInDoubleTest, TellsWhatItWouldHaveLeftOutside) {
  const at::Tensor table = torch::randn({3, 4}), number = torch::zeros({2}, at::kLong);
  const Tensors inputs = {torch::rand({4})};
  const Program program = record(inputs, [&](const Tensors& in) -> Tensors {
    table.select(0, 1).copy_(in[0].exp());
    number.add_(1);
    in[0].sqrt_();
    return {table.sum()};
  });
  const at::Tensor before = table.clone();
  const auto run = run_in_double(program, inputs);
  ASSERT_TRUE(run);
  const at::Tensor exact = inputs[0].to(at::kDouble);
  const auto near = [](const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-12, 1e-12); };
  EXPECT_TRUE(near(run->in_place_of(table.select(0, 1)), exact.exp()));
  EXPECT_TRUE(at::equal(run->in_place_of(table.t()).select(1, 2), before.select(0, 2).to(at::kDouble)));
  EXPECT_TRUE(near(run->in_place_of(inputs[0]), exact.sqrt()));
  EXPECT_TRUE(at::equal(run->in_place_of(number), number + 1));
  EXPECT_FALSE(run->in_place_of(torch::rand({4})).defined()) << "the program knows nothing of it";
}

// As autograd makes a gradient that it cannot take from another: memory first, then values.
TEST_F(RunInDoubleTest, TellsWhatItWouldHaveLeftInMemoryThatIsMadeInTheRunAndStays) {
  const Tensors inputs = {torch::rand({4, 3})};
  cpu_backend().watch_allocations();
  ProgramBuilder builder(inputs, ProgramBuilder::OnRefusal::kThrow);
  at::Tensor kept, turned;
  {
    const DispatchModeGuard mode(builder);
    kept = at::empty({4, 3}).copy_(inputs[0].exp());
    turned = at::empty({3, 4}).t().copy_(inputs[0].sqrt());
  }
  const Program program = builder.finish({}, Tensors{kept, turned});
  const auto run = run_in_double(program, inputs);
  ASSERT_TRUE(run);
  const at::Tensor exact = inputs[0].to(at::kDouble);
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() && a.scalar_type() == at::kDouble && at::allclose(a, b, 1e-12, 1e-12);
  };
  EXPECT_TRUE(near(run->in_place_of(kept), exact.exp()));
  EXPECT_TRUE(near(run->in_place_of(turned), exact.sqrt()));
}

TEST_F(RunInDoubleTest, RefusesRandomNumbersAndBuffersOfTwoTypes) {
  const Tensors inputs = {torch::rand({4})};
  EXPECT_FALSE(run_in_double(
      record(inputs, [](const Tensors& in) -> Tensors { return {in[0] + torch::rand({4})}; }), inputs));
  EXPECT_FALSE(run_in_double(
      record(inputs, [](const Tensors& in) -> Tensors { return {in[0].exp().view(at::kInt) + 1}; }), inputs));
}

}  // namespace
}  // namespace nimble
