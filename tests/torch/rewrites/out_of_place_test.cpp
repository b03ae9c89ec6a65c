#include "nimble/torch/rewrites/all.h"
#include "rewritten.h"

namespace nimble {
namespace {

using OutOfPlace = RewriteTest;
const std::vector<std::string> kAlone = {"out_of_place"};

TEST_F(OutOfPlace, AnInPlaceOperatorGetsAResultOfItsOwn) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0].exp();
    x.relu_();
    x.add_(in[0]);
    return {x * 2};
  };
  const Tensors inputs = {torch::randn({4})};
  EXPECT_EQ(drawn(record(inputs, function)), R"(
%0 = exp(input0)
%0 = relu_(%0)
%0 = add_(%0, input0)
%1 = mul(%0)
return %1
)");
  const Program program = rewritten(function, inputs, kAlone);
  EXPECT_EQ(drawn(program), R"(
%0 = exp(input0)
%1 = relu(%0)
%2 = add(%1, input0)
%3 = mul(%2)
return %3
)");
  EXPECT_TRUE(at::equal(run(program, inputs)[0], function(inputs)[0]));
}

TEST_F(OutOfPlace, WhatIsReturnedMayBeWhatWasWritten) {
  const Function function = [](const Tensors& in) -> Tensors { return {in[0].exp().neg_()}; };
  const Program program = rewritten(function, {torch::randn({4})}, kAlone);
  EXPECT_EQ(drawn(program), R"(
%0 = exp(input0)
%1 = neg(%0)
return %1
)");
}

TEST_F(OutOfPlace, ViewsOfItAreFoundInTheNewPlace) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0].exp();
    const at::Tensor row = x[1];
    x.neg_();
    return {row + 1};
  };
  const Tensors inputs = {torch::randn({3, 4})};
  const Program program = rewritten(function, inputs, kAlone);
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::exp", "aten::neg", "aten::add"}));
  EXPECT_TRUE(at::equal(run(program, inputs)[0], function(inputs)[0]));
}

TEST_F(OutOfPlace, DoesNotFireOnTensorsOutside) {
  const at::Tensor counter = torch::zeros({4});
  EXPECT_EQ(fired([&](const Tensors& in) -> Tensors { return {counter.add_(in[0]) + 1}; }, {torch::ones({4})},
                  "out_of_place"),
            0u);
}

TEST_F(OutOfPlace, DoesNotFireOnArguments) {
  EXPECT_EQ(fired([](const Tensors& in) -> Tensors { return {in[0].neg_() + 1}; }, {torch::ones({4})},
                  "out_of_place"),
            0u);
}

TEST_F(OutOfPlace, DoesNotFireOnAPartOfATensor) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0].exp();
    x[1].neg_();
    return {x * 2};
  };
  EXPECT_EQ(fired(function, {torch::ones({3, 4})}, "out_of_place"), 0u);
}

// Out of place the result would be float32: nobody rounds it to float16.
TEST_F(OutOfPlace, DoesNotFireWhereTheTypeWouldChange) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0].exp();
    x.add_(in[1]);
    return {x * 2};
  };
  EXPECT_EQ(fired(function, {torch::ones({4}, at::kHalf), torch::ones({4})}, "out_of_place"), 0u);
}

TEST_F(OutOfPlace, DoesNotFireOnMemoryThatNobodyFilled) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = torch::empty({4});
    x.fill_(3);
    return {x + in[0]};
  };
  EXPECT_EQ(fired(function, {torch::ones({4})}, "out_of_place"), 0u);
}

TEST_F(OutOfPlace, WritingToNothingFillsNothing) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = torch::empty({4});
    x.slice(0, 0, 0).fill_(1);
    x.slice(0, 0).copy_(in[0]);
    return {x.add(1).relu_()};
  };
  EXPECT_EQ(fired(function, {torch::ones({4})}, "out_of_place"), 1u);
}

TEST_F(OutOfPlace, InTrainingOnlyWhatExactKernelsCanTakeIn) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    return {in[0].cos().relu_().exp_().add_(in[0]).add_(in[0], 0.5)};
  });
  const Rewritten result = kOutOfPlace.apply(program, {.trains = true});
  EXPECT_EQ(drawn(result.program), R"(
%0 = cos(input0)
%1 = relu(%0)
%1 = exp_(%1)
%2 = add(%1, input0)
%2 = add_(%2, input0)
return %2
)");
  for (const Task& task : result.program.tasks) {
    const bool makes_memory = task.op.operator_name().name.back() != '_';
    EXPECT_EQ(task.allocations.size(), makes_memory ? 1u : 0u) << task.op.operator_name();
  }
}

TEST_F(OutOfPlace, InTrainingAloneItIsNothing) {
  const Function function = [](const Tensors& in) -> Tensors { return {in[0].cos().relu_()}; };
  EXPECT_EQ(fired(function, {torch::randn({4})}, "out_of_place"), 1u);
  EXPECT_EQ(fired(function, {torch::randn({4})}, "out_of_place", /*trains=*/true), 0u);
}

}  // namespace
}  // namespace nimble
