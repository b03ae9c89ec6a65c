#include "rewritten.h"
#include "somebodys_own.h"

namespace nimble {
namespace {

using CommonSubexpressions = RewriteTest;
const std::vector<std::string> kAlone = {"common_subexpressions"};

TEST_F(CommonSubexpressions, WhatIsComputedTwiceIsComputedOnce) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor exp = in[0].relu().exp();
    const at::Tensor neg = in[0].relu().neg();
    return {exp + neg};
  };
  const Tensors inputs = {torch::randn({4})};
  EXPECT_EQ(drawn(record(inputs, function)), R"(
%0 = relu(input0)
%1 = exp(%0)
%2 = relu(input0)
%3 = neg(%2)
%4 = add(%1, %3)
return %4
)");
  const Program program = rewritten(function, inputs, kAlone);
  EXPECT_EQ(drawn(program), R"(
%0 = relu(input0)
%1 = exp(%0)
%2 = neg(%0)
%3 = add(%1, %2)
return %3
)");
  EXPECT_TRUE(at::equal(run(program, inputs)[0], function(inputs)[0]));
}

TEST_F(CommonSubexpressions, ChainsMerge) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {in[0].exp().relu() + in[0].exp().relu()};
  };
  EXPECT_EQ(drawn(rewritten(function, {torch::randn({4})}, kAlone)), R"(
%0 = exp(input0)
%1 = relu(%0)
%2 = add(%1, %1)
return %2
)");
}

TEST_F(CommonSubexpressions, OneThatIsReturnedServesTheOthers) {
  const Function function = [](const Tensors& in) -> Tensors { return {in[0].exp() + 1, in[0].exp()}; };
  const Tensors inputs = {torch::randn({4})};
  const Program program = rewritten(function, inputs, kAlone);
  EXPECT_EQ(drawn(program), R"(
%0 = exp(input0)
%1 = add(%0)
return %1 %0
)");
  EXPECT_TRUE(at::equal(run(program, inputs)[1], function(inputs)[1]));
}

std::size_t merged(const Function& function, const Tensors& inputs) {
  return fired(function, inputs, "common_subexpressions");
}

TEST_F(CommonSubexpressions, SomebodysOwnOperatorMayDoMoreThanItsResultSays) {
  EXPECT_EQ(
      merged([](const Tensors& in) -> Tensors { return {by_somebodys_own(in[0]) + by_somebodys_own(in[0])}; },
             {torch::randn({4})}),
      0u);
}

TEST_F(CommonSubexpressions, TwoResultsStayTwoTensors) {
  EXPECT_EQ(merged(
                [](const Tensors& in) -> Tensors {
                  return {in[0].exp(), in[0].exp()};
                },
                {torch::randn({4})}),
            0u);
}

TEST_F(CommonSubexpressions, OtherNumbersAreOtherValues) {
  EXPECT_EQ(
      merged([](const Tensors& in) -> Tensors { return {(in[0] + 1) * (in[0] + 2)}; }, {torch::randn({4})}),
      0u);
}

TEST_F(CommonSubexpressions, RandomNumbersAreDrawnTwice) {
  EXPECT_EQ(
      merged([](const Tensors& in) -> Tensors { return {torch::rand_like(in[0]) - torch::rand_like(in[0])}; },
             {torch::randn({4})}),
      0u);
}

TEST_F(CommonSubexpressions, WhatIsWrittenInBetweenIsAnotherValue) {
  EXPECT_EQ(merged(
                [](const Tensors& in) -> Tensors {
                  const at::Tensor before = in[0].exp();
                  in[0].add_(1);
                  return {before + in[0].exp()};
                },
                {torch::randn({4})}),
            0u);
}

TEST_F(CommonSubexpressions, WhatIsWrittenLaterIsNotShared) {
  EXPECT_EQ(merged(
                [](const Tensors& in) -> Tensors {
                  at::Tensor a = in[0].exp();
                  const at::Tensor b = in[0].exp();
                  a[0].fill_(0);
                  return {a + b};
                },
                {torch::randn({4, 2})}),
            0u);
}

}  // namespace
}  // namespace nimble
