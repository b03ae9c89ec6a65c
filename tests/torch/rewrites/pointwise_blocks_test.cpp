#include "cuda/random_values.h"
#include "measured.h"

namespace nimble {
namespace {

class PointwiseBlocks : public RewriteTest {
 protected:
  static Program rewritten_blocks(const Function& function, const Tensors& inputs,
                                  const std::vector<std::string>& names = {"pointwise_blocks"}) {
    return rewritten_where_faster(function, inputs, names, measured(1, 100));
  }
  void expect_drawn(const Function& function, const Tensors& inputs, const std::string& picture) {
    const Program program = rewritten_blocks(function, inputs);
    EXPECT_EQ(drawn(program), picture);
    const Tensors expected = function(inputs), given = run(program, inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(given[i], expected[i], 1e-5, 1e-6));
    }
  }
  const Tensors inputs_ = {torch::randn({4, 6}), torch::randn({4, 6})};
};

TEST_F(PointwiseBlocks, AChainBecomesOneTask) {
  expect_drawn(
      [](const Tensors& in) -> Tensors { return {((in[0] * in[1]).relu() + in[0]).sigmoid() * 0.5}; },
      inputs_, R"(
%0 = nimble::pointwise_blocks(input0, input1)
return %0
)");
}

TEST_F(PointwiseBlocks, WhatOthersReadTooIsOneMoreResult) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor shared = in[0].exp();
        return {(shared + in[1]).relu(), shared.sum()};
      },
      inputs_, R"(
%0, %1 = nimble::pointwise_blocks(input0, input1)
%2 = sum(%0)
return %1 %2
)");
}

TEST_F(PointwiseBlocks, NotOtherTypes) {
  for (const auto type : {at::kDouble, at::kHalf, at::kInt}) {
    expect_drawn([](const Tensors& in) -> Tensors { return {(in[0] * in[0]).relu()}; }, {at::ones({8}, type)},
                 R"(
%0 = mul(input0, input0)
%1 = relu(%0)
return %1
)");
  }
}

TEST_F(PointwiseBlocks, NotWhatIsWrittenAgain) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0] * 2;
        const at::Tensor y = x.exp();
        x.select(0, 0).zero_();
        return {y.relu(), x};
      },
      inputs_, R"(
%0 = mul(input0)
%1 = exp(%0)
%0 = zero_(%0)
%2 = relu(%1)
return %2 %0
)");
}

TEST_F(PointwiseBlocks, NotAcrossAChangeOfWhatIsRead) {
  const at::Tensor state = torch::randn({4, 6});
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = state.exp();
    state.add_(in[0]);
    return {x.relu()};
  };
  EXPECT_EQ(operators(rewritten_blocks(function, inputs_)),
            (std::vector<std::string>{"aten::exp", "aten::add_", "aten::relu"}));
}

TEST_F(PointwiseBlocks, NotThroughAViewNorWhatTheSameTaskAlsoSeesThroughOne) {
  expect_drawn([](const Tensors& in) -> Tensors { return {in[0].exp().t().relu()}; }, inputs_, R"(
%0 = exp(input0)
%1 = relu(%0)
return %1
)");
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].exp();
        return {x + x.t()};
      },
      {torch::randn({4, 4})}, R"(
%0 = exp(input0)
%1 = add(%0, %0)
return %1
)");
}

TEST_F(PointwiseBlocks, NotIntoATensorThatIsGiven) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor both = at::zeros({8, 6});
        at::Tensor half = both.slice(0, 0, 4);
        at::sigmoid_out(half, in[0].exp());
        return {both.sum()};
      },
      inputs_, R"(
%0 = zeros()
%1 = exp(input0)
%0 = sigmoid(%1, %0)
%2 = sum(%0)
return %2
)");
}

// They would be computed again for each copy.
TEST_F(PointwiseBlocks, NotWhatIsReadAgainAndAgain) {
  expect_drawn([](const Tensors& in) -> Tensors { return {in[0].select(0, 0).exp() + in[1]}; }, inputs_, R"(
%0 = exp(input0)
%1 = add(%0, input1)
return %1
)");
}

TEST_F(PointwiseBlocks, NotWhereItMeasuresSlower) {
  const Function function = [](const Tensors& in) -> Tensors { return {(in[0] * in[1]).relu()}; };
  EXPECT_EQ(fired(function, inputs_, "pointwise_blocks"), 1u);  // nothing is measured
  const Program program = rewritten_where_faster(function, inputs_, {"pointwise_blocks"}, measured(100, 1));
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::mul", "aten::relu"}));
}

TEST_F(PointwiseBlocks, AnActivationThatAConvolutionCanDoIsLeftToIt) {
  const at::Tensor weight = torch::randn({8, 4, 3, 3});
  const Function function = [&](const Tensors& in) -> Tensors {
    return {(at::conv2d(in[0], weight).relu() * 2).sigmoid()};
  };
  const Program program =
      rewritten_blocks(function, {torch::randn({1, 4, 9, 9})}, {"mkldnn_convolution", "pointwise_blocks"});
  const auto names = operators(program);
  EXPECT_EQ(names[0], "nimble::mkldnn_convolution");
  EXPECT_EQ(std::count(names.begin(), names.end(), "aten::relu"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "nimble::pointwise_blocks"), 1);
}

TEST_F(PointwiseBlocks, NotInTraining) {
  const Function function = [](const Tensors& in) -> Tensors { return {(in[0] * in[1]).relu()}; };
  RewriteContext context = measured(1, 100);
  context.trains = true;
  const Program program = rewritten_where_faster(function, inputs_, {"pointwise_blocks"}, context);
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::mul", "aten::relu"}));
}

// Functions of one and of two, broadcasts, views, writes in place, values that are read several times.
TEST_F(PointwiseBlocks, RandomProgramsGiveWhatEagerGives) {
  using Operation = RandomValues::Operation;
  const std::vector<Operation> operations = {
      [](RandomValues& v) { return v.pick().sigmoid(); },
      [](RandomValues& v) { return at::silu(v.pick()); },
      [](RandomValues& v) { return v.pick().tanh(); },
      [](RandomValues& v) { return v.pick() * 0.5 + 1; },
      [](RandomValues& v) { return v.pick() + v.pick(); },
      [](RandomValues& v) { return v.pick() * v.pick().sigmoid(); },
      [](RandomValues& v) { return at::maximum(v.pick(), v.pick()); },
      [](RandomValues& v) { return v.pick() - v.pick().mean(0, true); },
      [](RandomValues& v) { return v.pick().t().relu().t(); },
      [](RandomValues& v) {
        v.pick_own().mul_(0.5);
        return at::Tensor();
      },
  };
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      RandomValues values({in[0], in[1], in[0] * 2}, 2, seed);
      values.grow(12, operations);
      return {values.last(), values[3]};
    };
    const Program program = rewritten_blocks(function, inputs_);
    for (const std::string& name : operators(program)) fired += name == "nimble::pointwise_blocks";
    const Tensors fresh = {torch::randn({4, 6}), torch::randn({4, 6})};
    const Tensors expected = function(fresh), given = run(program, fresh);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(given[i], expected[i], 1e-4, 1e-4)) << seed;
      EXPECT_EQ(given[i].strides(), expected[i].strides()) << seed;
    }
  }
  EXPECT_GT(fired, 60u);
}

}  // namespace
}  // namespace nimble
