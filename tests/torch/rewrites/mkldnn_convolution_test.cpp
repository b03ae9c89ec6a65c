#include "nimble/torch/packed.h"
#include "rewritten.h"

namespace nimble {
namespace {

class MkldnnConvolution : public RewriteTest {
 protected:
  at::Tensor convolution(const at::Tensor& x) const { return at::conv2d(x, weight_, bias_, 1, 1); }

  void expect_one_task(const Function& function) {
    const Program program = rewritten(function, image_, {"mkldnn_convolution"});
    EXPECT_EQ(drawn(program).find("convolution("), drawn(program).rfind("convolution("));
    expect_near(program, function);
  }
  void expect_near(const Program& program, const Function& function) {
    const at::Tensor expected = function(image_)[0], given = run(program, image_)[0];
    EXPECT_TRUE(at::allclose(given, expected, 1e-4, 1e-4)) << (given - expected).abs().max();
    EXPECT_EQ(given.strides(), expected.strides());
  }

  const Tensors image_ = {torch::randn({2, 4, 9, 9})};
  const at::Tensor weight_ = torch::randn({8, 4, 3, 3}), bias_ = torch::randn({8});
};

TEST_F(MkldnnConvolution, TakesItsActivationIn) {
  const Function function = [&](const Tensors& in) -> Tensors { return {convolution(in[0]).relu() * 2}; };
  EXPECT_EQ(drawn(record(image_, function)), R"(
%0 = convolution(input0, extern0, extern1)
%1 = relu(%0)
%2 = mul(%1)
return %2
)");
  const Program program = rewritten(function, image_, {"mkldnn_convolution"});
  EXPECT_EQ(drawn(program), R"(
%0 = nimble::mkldnn_convolution(input0, extern0, extern1)
%1 = mul(%0)
%2 = copy_(%2, %1)
return %2
)");
  expect_near(program, function);
}

TEST_F(MkldnnConvolution, TakesASumAndItsActivationIn) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor shortcut = in[0].repeat({1, 2, 1, 1});
    return {convolution(in[0]).add_(shortcut).relu_().sum()};
  };
  const Program program = rewritten(function, image_, {"mkldnn_convolution"});
  EXPECT_EQ(drawn(program).find("add("), std::string::npos) << drawn(program);
  EXPECT_EQ(drawn(program).find("relu("), std::string::npos) << drawn(program);
  const at::Tensor expected = function(image_)[0], given = run(program, image_)[0];
  EXPECT_TRUE(at::allclose(given, expected, 1e-4, 1e-2));
}

TEST_F(MkldnnConvolution, BehindASumOnlyARelu) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor shortcut = in[0].repeat({1, 2, 1, 1});
    return {at::hardtanh(convolution(in[0]) + shortcut, 0, 6)};
  };
  const Program program = rewritten(function, image_, {"mkldnn_convolution"});
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::repeat", "nimble::mkldnn_convolution",
                                                          "aten::hardtanh", "aten::copy_"}));
  expect_near(program, function);
}

// A sum of two convolutions becomes part of one of them.
TEST_F(MkldnnConvolution, OneOfTwoTakesTheSum) {
  const at::Tensor other = torch::randn({8, 4, 1, 1});
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor main = convolution(in[0]);
    const at::Tensor shortcut = at::conv2d(in[0], other);
    return {(main + shortcut).relu()};
  };
  const Program program = rewritten(function, image_, {"mkldnn_convolution"});
  EXPECT_EQ(drawn(program), R"(
%0 = nimble::mkldnn_convolution(input0, extern0)
%1 = nimble::mkldnn_convolution(input0, extern1, extern2, %0)
%2 = copy_(%2, %1)
return %2
)");
  expect_near(program, function);
}

TEST_F(MkldnnConvolution, KnowsEveryActivation) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> activations = {
      [](const at::Tensor& x) { return x.relu(); },
      [](const at::Tensor& x) { return x.sigmoid(); },
      [](const at::Tensor& x) { return x.tanh(); },
      [](const at::Tensor& x) { return at::hardswish(x); },
      [](const at::Tensor& x) { return at::hardsigmoid(x); },
      [](const at::Tensor& x) { return at::silu(x); },
      [](const at::Tensor& x) { return at::hardtanh(x, 0, 6); },
      [](const at::Tensor& x) { return at::leaky_relu(x, 0.2); },
      [](const at::Tensor& x) { return at::gelu(x); },
      [](const at::Tensor& x) { return at::gelu(x, "tanh"); },
      [](const at::Tensor& x) { return x.clamp(-0.5, 2); },
  };
  for (std::size_t i = 0; i < activations.size(); ++i) {
    SCOPED_TRACE(i);
    const Function function = [&](const Tensors& in) -> Tensors {
      return {activations[i](convolution(in[0]))};
    };
    const Program program = rewritten(function, image_, {"mkldnn_convolution"});
    EXPECT_EQ(operators(program), (std::vector<std::string>{"nimble::mkldnn_convolution", "aten::copy_"}));
    expect_near(program, function);
  }
}

TEST_F(MkldnnConvolution, GroupsStridesAndDilations) {
  const at::Tensor depthwise = torch::randn({4, 1, 3, 3});
  expect_one_task(
      [&](const Tensors& in) -> Tensors { return {at::conv2d(in[0], depthwise, {}, 2, 2, 2, 4).relu()}; });
}

TEST_F(MkldnnConvolution, PacksAgainWhenTheWeightChanges) {
  const Function function = [&](const Tensors& in) -> Tensors { return {convolution(in[0])}; };
  const Program program = rewritten(function, image_, {"mkldnn_convolution"});
  EXPECT_EQ(derived_from(program).size(), 2u);
  weight_.mul_(2);
  EXPECT_FALSE(at::allclose(run(program, image_)[0], function(image_)[0], 1e-4, 1e-4));
  derive_all(program);
  expect_near(program, function);
}

// The bias that the batch norm was folded into, and the packed weight that it was folded into, follow.
TEST_F(MkldnnConvolution, FollowsTheWeightsThatItsOwnWereDerivedFrom) {
  const at::Tensor gamma = torch::rand({8}), beta = torch::randn({8});
  const at::Tensor mean = torch::randn({8}), variance = torch::rand({8}) + 0.5;
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::batch_norm(convolution(in[0]), gamma, beta, mean, variance, false, 0.1, 1e-5, false).relu()};
  };
  const Program program = rewritten(function, image_, {"fold_batch_norm", "mkldnn_convolution"});
  EXPECT_EQ(drawn(program), R"(
%0 = nimble::mkldnn_convolution(input0, derived0, derived1)
%1 = copy_(%1, %0)
return %1
)");
  gamma.add_(1);
  mean.sub_(1);
  weight_.mul_(0.5);
  derive_all(program);
  expect_near(program, function);
}

TEST_F(MkldnnConvolution, NoActivationIsTakenInIfOthersSeeWhatIsBeforeIt) {
  const Function shared = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = convolution(in[0]), relu = y.relu();
    return {relu + y.sigmoid()};
  };
  EXPECT_EQ(operators(rewritten(shared, image_, {"mkldnn_convolution"})),
            (std::vector<std::string>{"nimble::mkldnn_convolution", "aten::relu", "aten::sigmoid",
                                      "aten::add", "aten::copy_"}));
  const Function returned = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = convolution(in[0]);
    return {y.relu(), y};
  };
  const Program program = rewritten(returned, image_, {"mkldnn_convolution"});
  EXPECT_NE(drawn(program).find("relu("), std::string::npos) << drawn(program);
}

TEST_F(MkldnnConvolution, AnInputThatIsWrittenInBetweenKeepsTheConvolutionInItsPlace) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].clone();
    const at::Tensor y = convolution(x);
    x[0].fill_(0);
    return {y.relu() + x.sum()};
  };
  const Program program = rewritten(function, image_, {"mkldnn_convolution"});
  EXPECT_NE(drawn(program).find("relu("), std::string::npos) << drawn(program);
  expect_near(program, function);
}

TEST_F(MkldnnConvolution, WhatIsAddedAndThenWrittenKeepsTheSumInItsPlace) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor shortcut = in[0].repeat({1, 2, 1, 1});
    const at::Tensor sum = convolution(in[0]) + shortcut;
    shortcut[0].fill_(0);
    return {sum.relu() + shortcut.sum()};
  };
  const Program program = rewritten(function, image_, {"mkldnn_convolution"});
  EXPECT_EQ(drawn(program).find("add(%0, %1)"), std::string::npos) << drawn(program);
  EXPECT_NE(drawn(program).find("relu("), std::string::npos) << drawn(program);
  expect_near(program, function);
}

TEST_F(MkldnnConvolution, NotAnActivationThatWritesToATensorItWasGiven) {
  const Function function = [&](const Tensors& in) -> Tensors {
    at::Tensor out = at::empty({2, 8, 9, 9});
    at::sigmoid_out(out, convolution(in[0]));
    return {out};
  };
  const Program program = rewritten(function, image_, {"mkldnn_convolution"});
  EXPECT_NE(drawn(program).find("sigmoid("), std::string::npos) << drawn(program);
  expect_near(program, function);
}

std::size_t packed(const Function& function, const Tensors& inputs) {
  return fired(function, inputs, "mkldnn_convolution");
}

TEST_F(MkldnnConvolution, NotWithAWeightThatTheProgramComputesOrChanges) {
  EXPECT_EQ(packed([](const Tensors& in) -> Tensors { return {at::conv2d(in[0], in[1])}; },
                   {torch::randn({1, 4, 5, 5}), torch::randn({4, 4, 3, 3})}),
            0u);
  EXPECT_EQ(packed(
                [&](const Tensors& in) -> Tensors {
                  const at::Tensor y = convolution(in[0]);
                  weight_.mul_(0.5);
                  return {y};
                },
                image_),
            0u);
}

TEST_F(MkldnnConvolution, NotOneThatWritesToATensorItWasGiven) {
  const std::vector<std::int64_t> one = {1, 1}, none = {0, 0};
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor both = torch::zeros({2, 16, 9, 9});
    at::Tensor half = both.slice(1, 0, 8);
    at::convolution_out(half, in[0], weight_, bias_, one, one, one, false, none, 1);
    return {convolution(in[0]) + both.slice(1, 4, 12)};
  };
  EXPECT_EQ(packed(function, image_), 1u);
  expect_near(rewritten(function, image_, {"mkldnn_convolution"}), function);
}

// PyTorch's own takes it for granted that its result lies as its input does.
TEST_F(MkldnnConvolution, ANormThatWritesToATensorItWasGivenReadsWhatItWasRecordedWith) {
  const at::Tensor one = torch::ones({8}), zero = torch::zeros({8});
  const Function function = [&](const Tensors& in) -> Tensors {
    at::Tensor normed = torch::empty({2, 8, 9, 9}), mean = torch::empty({0}), deviation = torch::empty({0});
    at::native_batch_norm_out(normed, mean, deviation, convolution(in[0]), bias_, zero, zero, one, false, 0.1,
                              1e-5);
    return {normed.relu() + 1};
  };
  EXPECT_EQ(packed(function, image_), 1u);
  expect_near(rewritten(function, image_, {"mkldnn_convolution"}), function);
}

TEST_F(MkldnnConvolution, NotInFloat64) {
  const at::Tensor weight = weight_.to(at::kDouble);
  EXPECT_EQ(packed([&](const Tensors& in) -> Tensors { return {at::conv2d(in[0], weight)}; },
                   {image_[0].to(at::kDouble)}),
            0u);
}

}  // namespace
}  // namespace nimble
