#include "nimble/torch/rewrites/uses.h"
#include "rewritten.h"
#include "somebodys_own.h"

namespace nimble {
namespace {

using WeightsOnce = RewriteTest;
const std::vector<std::string> kAlone = {"weights_once"};

TEST_F(WeightsOnce, WhatIsComputedFromWeightsAloneIsTakenOut) {
  const at::Tensor weight = torch::randn({4});
  const Function function = [&](const Tensors& in) -> Tensors { return {in[0] * weight.exp().neg()}; };
  const Tensors inputs = {torch::randn({4})};
  EXPECT_EQ(drawn(record(inputs, function)), R"(
%0 = exp(extern0)
%1 = neg(%0)
%2 = mul(input0, %1)
return %2
)");
  const Program program = rewritten(function, inputs, kAlone);
  EXPECT_EQ(drawn(program), R"(
%0 = mul(input0, derived0)
return %0
)");
  EXPECT_TRUE(at::equal(run(program, inputs)[0], function(inputs)[0]));
}

TEST_F(WeightsOnce, IsMadeAgainInPlaceWhenAWeightChanges) {
  const at::Tensor weight = torch::randn({4});
  const Function function = [&](const Tensors& in) -> Tensors { return {in[0] * weight.exp()}; };
  const Tensors inputs = {torch::randn({4})};
  const Program program = rewritten(function, inputs, kAlone);
  ASSERT_EQ(derived_from(program).size(), 1u);
  EXPECT_TRUE(derived_from(program)[0].is_same(weight));
  const void* address = program.derivations[0]->results[0].data_ptr();
  weight.add_(1);
  derive_all(program);
  EXPECT_TRUE(at::equal(run(program, inputs)[0], function(inputs)[0]));
  EXPECT_EQ(program.derivations[0]->results[0].data_ptr(), address);
}

TEST_F(WeightsOnce, ViewsOfWhatWasDerivedStayViews) {
  const at::Tensor weight = torch::randn({3, 4});
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor e = weight.exp();
    return {in[0] * e[1] + e.t()[2].sum()};
  };
  const Tensors inputs = {torch::randn({4})};
  const Program program = rewritten(function, inputs, kAlone);
  EXPECT_TRUE(at::equal(run(program, inputs)[0], function(inputs)[0]));
}

std::size_t taken_out(const Function& function, const Tensors& inputs, bool trains = false) {
  return fired(function, inputs, "weights_once", trains);
}

// Sixty squares read one another by 2^60 ways.
TEST_F(WeightsOnce, WhateverReadsTheSameWeightsAgainAndAgainIsLookedAtOnce) {
  const at::Tensor weight = torch::rand({4, 4});
  const Function function = [&](const Tensors& in) -> Tensors {
    at::Tensor w = weight;
    for (int i = 0; i < 60; ++i) w = w * w;
    return {at::linear(in[0], w)};
  };
  const Program program = record({torch::randn({2, 4})}, function);
  EXPECT_TRUE(Uses(program).is_weight(*tensor_argument(program.tasks.back(), 1)));
}

TEST_F(WeightsOnce, NotFromAWeightThatTheProgramWrites) {
  const at::Tensor weight = torch::randn({4});
  EXPECT_EQ(taken_out(
                [&](const Tensors& in) -> Tensors {
                  const at::Tensor e = weight.exp();
                  weight.add_(in[0]);
                  return {e * in[0]};
                },
                {torch::randn({4})}),
            0u);
}

TEST_F(WeightsOnce, NotWhatIsReturned) {
  const at::Tensor weight = torch::randn({4});
  EXPECT_EQ(taken_out([&](const Tensors&) -> Tensors { return {weight.exp()}; }, {torch::randn({4})}), 0u);
}

TEST_F(WeightsOnce, NotInTraining) {
  const at::Tensor weight = torch::randn({4});
  EXPECT_EQ(
      taken_out([&](const Tensors& in) -> Tensors { return {in[0] * weight.exp()}; }, {torch::randn({4})},
                /*trains=*/true),
      0u);
}

TEST_F(WeightsOnce, NotBySomebodysOwnOperatorWhichMayDoMoreThanItsResultSays) {
  const at::Tensor weight = torch::randn({4});
  EXPECT_EQ(taken_out([&](const Tensors& in) -> Tensors { return {in[0] * by_somebodys_own(weight)}; },
                      {torch::randn({4})}),
            0u);
}

TEST_F(WeightsOnce, NotAtRandom) {
  const at::Tensor weight = torch::randn({4});
  EXPECT_EQ(taken_out([&](const Tensors& in) -> Tensors { return {in[0] * torch::rand_like(weight)}; },
                      {torch::randn({4})}),
            0u);
}

// Their changes cannot be noticed.
TEST_F(WeightsOnce, NotFromTensorsMadeUnderInferenceMode) {
  at::Tensor weight;
  {
    const c10::InferenceMode inference;
    weight = torch::randn({4});
  }
  EXPECT_EQ(
      taken_out([&](const Tensors& in) -> Tensors { return {in[0] * weight.exp()}; }, {torch::randn({4})}),
      0u);
}

}  // namespace
}  // namespace nimble
