#include "nimble/engine/usual_errors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nimble/torch/dispatch_mode.h"
#include "nimble/torch/program_builder.h"

namespace nimble {
namespace {

using Tensors = std::vector<at::Tensor>;

template <class Function>
Program recorded(const Tensors& inputs, Function&& function) {
  ProgramBuilder builder(inputs, ProgramBuilder::OnRefusal::kThrow);
  Tensors outputs;
  {
    const DispatchModeGuard mode(builder);
    outputs = function(inputs);
  }
  return builder.finish(outputs);
}

TEST(UsualErrors, AreThoseOfInputsNearTheGivenOnes) {
  // Of ones, half precision computes the product without any error; of numbers nearby it does not.
  const at::Tensor weight = at::full({64, 8}, 0.5, at::kHalf);
  const Tensors inputs = {at::ones({4, 64}, at::kHalf)};
  const Program program =
      recorded(inputs, [&](const Tensors& in) -> Tensors { return {in[0].mm(weight).mul(3)}; });
  const auto errors = usual_errors(program, inputs);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_GT(errors[0], 1e-3);
  EXPECT_LT(errors[0], 1.0);
}

TEST(UsualErrors, OfSinglePrecisionAreThousandsOfTimesSmaller) {
  const at::Tensor weight = at::full({64, 8}, 0.5);
  const Tensors inputs = {at::ones({4, 64})};
  const Program program =
      recorded(inputs, [&](const Tensors& in) -> Tensors { return {in[0].mm(weight).mul(3)}; });
  EXPECT_LT(usual_errors(program, inputs).at(0), 1e-4);
}

TEST(UsualErrors, LeaveWhatTheProgramWritesAsItWas) {
  at::Tensor count = at::zeros({1}, at::kHalf);
  const Tensors inputs = {at::ones({4}, at::kHalf)};
  const Program program = recorded(inputs, [&](const Tensors& in) -> Tensors {
    count.add_(1);
    return {in[0] * 0.3};
  });
  count.zero_();
  usual_errors(program, inputs);
  EXPECT_EQ(count.item<float>(), 0.0f);
}

TEST(UsualErrors, AreNoneWhereARunFailsAndWhatItWroteIsAsItWas) {
  at::Tensor count = at::zeros({1});
  const at::Tensor table = at::zeros({200'001});
  const Program program = recorded({at::zeros({1}, at::kHalf)}, [&](const Tensors& in) -> Tensors {
    count.add_(1);
    return {table.index_select(0, (in[0] * 1e5).to(at::kLong))};
  });
  count.zero_();
  // Infinite in half precision, and not in double.
  EXPECT_TRUE(usual_errors(program, Tensors{at::ones({1}, at::kHalf)}).empty());
  EXPECT_EQ(count.item<float>(), 0.0f);
}

}  // namespace
}  // namespace nimble
