#include "norm.h"
#include "rewritten.h"

namespace nimble {
namespace {

class FoldBatchNorm : public RewriteTest {
 protected:
  // Fires once, and gives what eager gives.
  void expect_folded(const Function& function, const Tensors& inputs) {
    EXPECT_EQ(fired(function, inputs, "fold_batch_norm"), 1u);
    const Program program = rewritten(function, inputs, {"fold_batch_norm"});
    for (const std::string& name : operators(program)) EXPECT_NE(name, "aten::native_batch_norm");
    const at::Tensor expected = function(inputs)[0], given = run(program, inputs)[0];
    EXPECT_TRUE(at::allclose(given, expected, 1e-4, 1e-4)) << (given - expected).abs().max();
  }
  void expect_unfolded(const Function& function, const Tensors& inputs) {
    EXPECT_EQ(fired(function, inputs, "fold_batch_norm"), 0u);
  }
  const Tensors image_ = {torch::randn({2, 4, 9, 9})};
};

TEST_F(FoldBatchNorm, IntoTheConvolutionBefore) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3}), bias = torch::randn({6});
  const Norm norm(6);
  const Function function = [&](const Tensors& in) -> Tensors {
    return {norm(at::conv2d(in[0], weight, bias, 1, 1)).relu()};
  };
  EXPECT_EQ(drawn(record(image_, function)), R"(
%0 = convolution(input0, extern0, extern1)
%1, %2, %3 = native_batch_norm(%0, extern2, extern3, extern4, extern5)
%4 = relu(%1)
return %4
)");
  EXPECT_EQ(drawn(rewritten(function, image_, {"fold_batch_norm"})), R"(
%0 = convolution(input0, derived0, derived1)
%1 = relu(%0)
return %1
)");
  expect_folded(function, image_);
}

TEST_F(FoldBatchNorm, WithoutBias) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3});
  const Norm norm(6);
  expect_folded([&](const Tensors& in) -> Tensors { return {norm(at::conv2d(in[0], weight))}; }, image_);
}

TEST_F(FoldBatchNorm, WithoutScaleAndShift) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3});
  const Norm norm(6);
  expect_folded(
      [&](const Tensors& in) -> Tensors {
        return {at::batch_norm(at::conv2d(in[0], weight), {}, {}, norm.mean, norm.variance, false, 0.1, 1e-5,
                               false)};
      },
      image_);
}

TEST_F(FoldBatchNorm, IntoAGroupedConvolution) {
  const at::Tensor weight = torch::randn({6, 2, 3, 3});
  const Norm norm(6);
  expect_folded(
      [&](const Tensors& in) -> Tensors { return {norm(at::conv2d(in[0], weight, {}, 2, 1, 1, 2))}; },
      image_);
}

TEST_F(FoldBatchNorm, IntoATransposedConvolution) {
  const at::Tensor weight = torch::randn({4, 6, 3, 3}), bias = torch::randn({6});
  const Norm norm(6);
  expect_folded(
      [&](const Tensors& in) -> Tensors { return {norm(at::conv_transpose2d(in[0], weight, bias, 2))}; },
      image_);
}

TEST_F(FoldBatchNorm, IntoAGroupedTransposedConvolution) {
  const at::Tensor weight = torch::randn({4, 3, 3, 3});
  const Norm norm(6);
  expect_folded(
      [&](const Tensors& in) -> Tensors {
        return {norm(at::conv_transpose2d(in[0], weight, {}, 1, 0, 0, 2))};
      },
      image_);
}

TEST_F(FoldBatchNorm, IntoALinearLayer) {
  const at::Tensor weight = torch::randn({6, 5}), bias = torch::randn({6});
  const Norm norm(6);
  expect_folded([&](const Tensors& in) -> Tensors { return {norm(at::linear(in[0], weight, bias))}; },
                {torch::randn({3, 5})});
}

TEST_F(FoldBatchNorm, IntoALinearLayerWithoutBias) {
  const at::Tensor weight = torch::randn({6, 5});
  const Norm norm(6);
  const Function function = [&](const Tensors& in) -> Tensors { return {norm(at::linear(in[0], weight))}; };
  const Tensors rows = {torch::randn({3, 5})};
  EXPECT_EQ(drawn(rewritten(function, rows, {"fold_batch_norm"})), R"(
%0 = addmm(derived0, input0, derived1)
return %0
)");
  expect_folded(function, rows);
}

TEST_F(FoldBatchNorm, IntoAPartOfALargerWeight) {
  const at::Tensor large = torch::randn({6, 9});
  const Norm norm(6);
  expect_folded([&](const Tensors& in) -> Tensors { return {norm(at::linear(in[0], large.slice(1, 2, 7)))}; },
                {torch::randn({3, 5})});
}

TEST_F(FoldBatchNorm, IntoTheLinearLayerBehind) {
  const at::Tensor weight = torch::randn({6, 5}), bias = torch::randn({6});
  const Norm norm(5);
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(norm(in[0]), weight, bias)};
  };
  const Tensors rows = {torch::randn({3, 5})};
  EXPECT_EQ(drawn(rewritten(function, rows, {"fold_batch_norm"})), R"(
%0 = addmm(derived0, input0, derived1)
return %0
)");
  expect_folded(function, rows);
  expect_folded([&](const Tensors& in) -> Tensors { return {at::linear(norm(in[0]), weight)}; }, rows);
}

TEST_F(FoldBatchNorm, NotIntoAProductThatItIsTheWeightOf) {
  const at::Tensor rows = torch::randn({3, 5});
  const Norm norm(6);
  expect_unfolded([&](const Tensors& in) -> Tensors { return {at::mm(rows, norm(in[0]))}; },
                  {torch::randn({5, 6})});
}

TEST_F(FoldBatchNorm, IntoTheConvolutionBehind) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3}), bias = torch::randn({6});
  const Norm norm(4);
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::conv2d(norm(in[0]), weight, bias)};
  };
  EXPECT_EQ(drawn(rewritten(function, image_, {"fold_batch_norm"})), R"(
%0 = convolution(input0, derived0, derived1)
return %0
)");
  expect_folded(function, image_);
}

TEST_F(FoldBatchNorm, IntoAGroupedConvolutionBehind) {
  const at::Tensor weight = torch::randn({6, 2, 3, 3});
  const Norm norm(4);
  expect_folded(
      [&](const Tensors& in) -> Tensors {
        return {at::conv2d(norm(in[0]), weight, {}, at::IntArrayRef{1}, at::IntArrayRef{0},
                           at::IntArrayRef{1}, 2)};
      },
      image_);
}

TEST_F(FoldBatchNorm, NotIntoAPaddedConvolutionBehind) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3});
  const Norm norm(4);
  expect_unfolded(
      [&](const Tensors& in) -> Tensors {
        return {at::conv2d(norm(in[0]), weight, {}, at::IntArrayRef{1}, at::IntArrayRef{1})};
      },
      image_);
}

TEST_F(FoldBatchNorm, NotIfItsInputIsChangedBeforeTheConvolutionBehind) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3});
  const Norm norm(4);
  expect_unfolded(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor normed = norm(in[0]);
        in[0].mul_(2);
        return {at::conv2d(normed, weight)};
      },
      image_);
}

TEST_F(FoldBatchNorm, WithNumbersThatAreMadeBehindTheConvolution) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3}), gamma = torch::randn({6});
  const Norm norm(6);
  expect_folded(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor y = at::conv2d(in[0], weight);
        return {at::batch_norm(y, gamma + 1, norm.beta, norm.mean, norm.variance, false, 0.1, 1e-5, false)};
      },
      image_);
}

TEST_F(FoldBatchNorm, NotIfSomebodyElseLooksAtTheConvolution) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3});
  const Norm norm(6);
  expect_unfolded(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor y = at::conv2d(in[0], weight);
        return {norm(y) + y};
      },
      image_);
  expect_unfolded(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor y = at::conv2d(in[0], weight);
        return {norm(y), y};
      },
      image_);
}

TEST_F(FoldBatchNorm, NotInTrainingMode) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3});
  const Norm norm(6);
  expect_unfolded([&](const Tensors& in) -> Tensors { return {norm(at::conv2d(in[0], weight), true)}; },
                  image_);
}

TEST_F(FoldBatchNorm, NotWithWeightsThatTheProgramChanges) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3});
  const Norm norm(6);
  expect_unfolded(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor y = norm(at::conv2d(in[0], weight));
        weight.mul_(0.5);
        return {y};
      },
      image_);
}

TEST_F(FoldBatchNorm, NotWithWeightsThatAreComputedFromTheInput) {
  const Norm norm(4);
  expect_unfolded([&](const Tensors& in) -> Tensors { return {norm(at::conv2d(in[0], in[1].exp()))}; },
                  {torch::randn({1, 4, 9, 9}), torch::randn({4, 4, 3, 3})});
}

TEST_F(FoldBatchNorm, NotAcrossAView) {
  const at::Tensor weight = torch::randn({6, 4, 3, 3});
  const Norm norm(3);
  expect_unfolded(
      [&](const Tensors& in) -> Tensors { return {norm(at::conv2d(in[0], weight).slice(1, 0, 3))}; }, image_);
}

}  // namespace
}  // namespace nimble
