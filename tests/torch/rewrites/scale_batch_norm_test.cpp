#include "measured.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/uses.h"
#include "norm.h"

namespace nimble {
namespace {

const RewriteContext kOnAGpu{.device = c10::Device(c10::kCUDA, 0)};

class ScaleBatchNorm : public RewriteTest {
 protected:
  std::size_t fired_on(const Function& function) const { return fired(function, image_, "scale_batch_norm"); }
  // With `context`, and everything else that comes with it.
  static Program scaled(const Function& function, const Tensors& inputs, const RewriteContext& context = {}) {
    return rewritten_where_faster(function, inputs, {"scale_batch_norm"}, context);
  }
  static void expect_near(const Program& program, const Function& function, const Tensors& inputs,
                          double tolerance = 1e-5) {
    const Tensors expected = function(inputs), given = run(program, inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(given[i].strides(), expected[i].strides());
      EXPECT_EQ(given[i].scalar_type(), expected[i].scalar_type());
      EXPECT_TRUE(at::allclose(given[i], expected[i], tolerance, tolerance));
    }
  }

  const Norm norm_{4};
  const Tensors image_ = {torch::randn({2, 4, 5, 5})};
  const Function norm_and_relu_ = [this](const Tensors& in) -> Tensors { return {norm_(in[0]).relu()}; };
};

TEST_F(ScaleBatchNorm, BecomesAProductAndASum) {
  EXPECT_EQ(drawn(record(image_, norm_and_relu_)), R"(
%0, %1, %2 = native_batch_norm(input0, extern0, extern1, extern2, extern3)
%3 = relu(%0)
return %3
)");
  const Program program = scaled(norm_and_relu_, image_);
  EXPECT_EQ(drawn(program), R"(
%0 = addcmul(derived0, input0, derived1)
%1 = relu(%0)
return %1
)");
  expect_near(program, norm_and_relu_, image_);
}

TEST_F(ScaleBatchNorm, WhichTheActivationBehindItFusesWith) {
  const Program program = rewritten(norm_and_relu_, image_, {"scale_batch_norm", "pointwise_blocks"});
  EXPECT_EQ(drawn(program), R"(
%0 = nimble::pointwise_blocks(derived0, input0, derived1)
return %0
)");
  expect_near(program, norm_and_relu_, image_);
}

// The sum of a residual network that normalises first: what the next block begins with, and what is added to
// its result.
TEST_F(ScaleBatchNorm, AndTheSumBeforeIt) {
  const at::Tensor weight = torch::randn({4, 4, 1, 1});
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor sum = in[0] + in[1];
    return {at::conv2d(norm_(sum).relu(), weight).sigmoid().cumsum(1) + sum};
  };
  const Tensors inputs = {image_[0], torch::randn({2, 4, 5, 5})};
  const Program program = rewritten(function, inputs, {"scale_batch_norm", "pointwise_blocks"});
  EXPECT_EQ(drawn(program), R"(
%0, %1 = nimble::pointwise_blocks(input0, input1, derived0, derived1)
%2 = convolution(%1, extern0)
%3 = sigmoid(%2)
%4 = cumsum(%3)
%5 = add(%4, %0)
return %5
)");
  expect_near(program, function, inputs);
}

// In float32, as ATen computes it, and rounded once.
TEST_F(ScaleBatchNorm, HalfPrecisionIsRoundedOnce) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const Tensors half = {image_[0].to(type)};
    const Program program = scaled(norm_and_relu_, half, kOnAGpu);
    EXPECT_EQ(drawn(program), R"(
%0 = addcmul(derived0, input0, derived1)
%1 = _to_copy(%0)
%2 = relu(%1)
return %2
)");
    EXPECT_EQ(first_result(program.tasks[0]).dtype, at::kFloat);
    expect_near(program, norm_and_relu_, half, type == at::kHalf ? 1e-3 : 8e-3);
  }
}

TEST_F(ScaleBatchNorm, OfAnyNumberOfDimensionsAndLayout) {
  for (const at::Tensor& x :
       {torch::randn({3, 4}), torch::randn({3, 4, 7}), torch::randn({2, 4, 3, 3, 3}),
        torch::randn({2, 4, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast), image_[0].to(at::kDouble)}) {
    const Norm norm = norm_.to(x.scalar_type());
    const Function function = [&](const Tensors& in) -> Tensors { return {norm(in[0]).relu()}; };
    EXPECT_EQ(operators(scaled(function, {x}, kOnAGpu)),
              (std::vector<std::string>{"aten::addcmul", "aten::relu"}));
    expect_near(scaled(function, {x}, kOnAGpu), function, {x});
  }
}

TEST_F(ScaleBatchNorm, WithoutScaleAndShift) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::batch_norm(in[0], {}, {}, norm_.mean, norm_.variance, false, 0.1, 1e-5, false).sigmoid()};
  };
  expect_near(scaled(function, image_), function, image_);
  EXPECT_EQ(fired_on(function), 1u);
}

TEST_F(ScaleBatchNorm, OneThatFoldsIsFolded) {
  const at::Tensor weight = torch::randn({4, 4, 1, 1});
  const Function function = [&](const Tensors& in) -> Tensors {
    return {norm_(at::conv2d(in[0], weight)).relu()};
  };
  EXPECT_EQ(operators(rewritten(function, image_, {"fold_batch_norm", "scale_batch_norm"})),
            (std::vector<std::string>{"aten::convolution", "aten::relu"}));
}

TEST_F(ScaleBatchNorm, IsTakenWhereItMeasuresFaster) {
  EXPECT_EQ(operators(scaled(norm_and_relu_, image_, measured(1, 100)))[0], "aten::addcmul");
  EXPECT_EQ(operators(scaled(norm_and_relu_, image_, measured(100, 1)))[0], "aten::native_batch_norm");
}

TEST_F(ScaleBatchNorm, FollowsItsWeights) {
  const Program program = scaled(norm_and_relu_, image_);
  norm_.variance.mul_(2);
  norm_.beta.add_(1);
  derive_all(program);
  expect_near(program, norm_and_relu_, image_);
}

TEST_F(ScaleBatchNorm, NotInTrainingAndNotOfTheBatchsOwnStatistics) {
  EXPECT_EQ(fired(norm_and_relu_, image_, "scale_batch_norm", /*trains=*/true), 0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors { return {norm_(in[0], true).relu()}; }), 0u);
}

TEST_F(ScaleBatchNorm, NotWhereNothingPointwiseFollows) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors { return {norm_(in[0])}; }), 0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors { return {norm_(in[0]).cumsum(1)}; }), 0u);
}

// The kernels that fuse leave what waits for something slower apart, too.
TEST_F(ScaleBatchNorm, NotWhereWhatFollowsWaitsForSomethingSlower) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor slow = in[0].cumsum(1).cumsum(2);
              return {norm_(in[0]) + slow};
            }),
            0u);
}

TEST_F(ScaleBatchNorm, NotIfOthersLookToo) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor y = norm_(in[0]);
              return {y.relu(), y.sum()};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor y = norm_(in[0]);
              return {y.relu(), y};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const auto [y, mean, deviation] = at::native_batch_norm(
                  in[0], norm_.gamma, norm_.beta, norm_.mean, norm_.variance, false, 0.1, 1e-5);
              return {y.relu(), mean};
            }),
            0u);
}

TEST_F(ScaleBatchNorm, NotIfItsResultIsWrittenOrAPartOfItIs) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor y = norm_(in[0]);
              y.select(0, 0).zero_();
              return {y.relu()};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor y = norm_(in[0]);
              y.slice(1, 0, 2).relu_();
              return {y + 1};
            }),
            0u);
}

TEST_F(ScaleBatchNorm, NotBeforeAnActivationThatWritesToATensorItWasGiven) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor both = torch::zeros({2, 8, 5, 5});
              at::Tensor half = both.slice(1, 0, 4);
              at::silu_out(half, norm_(in[0]));
              return {both + 1};
            }),
            0u);
}

// The product stands where the batch norm stood.
TEST_F(ScaleBatchNorm, WhatItReadMayBeWrittenAfterwards) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2, y = norm_(x);
    x.select(0, 0).zero_();
    return {y.relu(), x + 1};
  };
  const Program program = rewritten(function, image_, {"scale_batch_norm", "pointwise_blocks"});
  EXPECT_EQ(fired_on(function), 1u);
  expect_near(program, function, image_);
}

TEST_F(ScaleBatchNorm, NotIfAWeightIsWrittenByTheProgram) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              norm_.beta.add_(in[0].mean());
              return {norm_(in[0]).relu()};
            }),
            0u);
}

TEST_F(ScaleBatchNorm, NotThroughAViewAndNotForMoreThanItMade) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors { return {norm_(in[0]).transpose(2, 3).relu()}; }),
            0u);
  const at::Tensor more = torch::randn({3, 2, 4, 5, 5});
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors { return {norm_(in[0]) + more}; }), 0u);
}

TEST_F(ScaleBatchNorm, NotOnACpuInOtherTypesThanFloat32) {
  for (const auto type : {at::kDouble, at::kBFloat16}) {
    const Norm norm = norm_.to(type);
    const Function function = [&](const Tensors& in) -> Tensors { return {norm(in[0]).relu()}; };
    EXPECT_EQ(fired(function, {image_[0].to(type)}, "scale_batch_norm"), 0u);
  }
}

}  // namespace
}  // namespace nimble
