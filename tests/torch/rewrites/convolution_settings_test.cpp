#include "nimble/torch/rewrites/convolution_settings.h"

#include "nimble/torch/rewrites/convolution.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/unrun_convolution.h"
#include "nimble/torch/rewrites/uses.h"
#include "rewritten.h"

namespace nimble {
namespace {

using namespace convolution;

class ConvolutionSettings : public RewriteTest {
 protected:
  Tensors function(const Tensors& in) const {
    const auto type = in[0].scalar_type();
    return {at::conv2d(in[0], weight_.to(type), bias_.to(type), {2, 2}, {1, 1}).relu()};
  }
  // The convolution and the relu of `function`, for an image of this type.
  Program recorded(at::ScalarType type = at::kFloat) const {
    Program program = record({image_.to(type)}, [&](const Tensors& in) { return function(in); });
    program.tasks.erase(program.tasks.begin(), program.tasks.end() - 2);  // casts
    return program;
  }
  void expect_same_results(const Program& program) const {
    EXPECT_TRUE(at::equal(run(program, {image_})[0], function({image_})[0]));
  }

  const at::Tensor weight_ = torch::randn({4, 3, 3, 3}), bias_ = torch::randn({4}),
                   image_ = torch::randn({2, 3, 9, 9});
};

TEST_F(ConvolutionSettings, UnsearchedComputesTheSameWithoutCudnnsSearch) {
  Program program = recorded();
  for (Task& task : program.tasks) task = unsearched(std::move(task));
  EXPECT_EQ(program.tasks[0].op.operator_name().name, "aten::_convolution");
  EXPECT_EQ(program.tasks[0].op.schema().arguments()[kBenchmark].name(), "benchmark");
  EXPECT_FALSE(value_argument(program.tasks[0], kBenchmark).toBool());
  expect_same_results(program);
}

TEST_F(ConvolutionSettings, WithoutTF32IsSaidToTheCallAndNoOtherSettingChanges) {
  Program program = recorded();
  ASSERT_TRUE(may_round_to_tf32(program.tasks[0])) << "TF32 convolutions are allowed unless somebody says no";
  for (Task& task : program.tasks) task = without_tf32(std::move(task));
  const Task& task = program.tasks[0];
  EXPECT_FALSE(may_round_to_tf32(task));
  EXPECT_EQ(task.op.schema().arguments()[kAllowTf32].name(), "allow_tf32");
  EXPECT_FALSE(value_argument(task, kAllowTf32).toBool());
  EXPECT_EQ(value_argument(task, kBenchmark).toBool(), at::globalContext().benchmarkCuDNN());
  EXPECT_EQ(value_argument(task, kCudnnEnabled).toBool(), at::globalContext().userEnabledCuDNN());
  expect_same_results(program);
}

TEST_F(ConvolutionSettings, WhatIsMeasuredWithoutTF32IsNotSearchedEither) {
  const Task task = unsearched(without_tf32(recorded().tasks[0]));
  EXPECT_FALSE(value_argument(task, kBenchmark).toBool());
  EXPECT_FALSE(value_argument(task, kAllowTf32).toBool());
}

TEST_F(ConvolutionSettings, TimesAreKeptApartByThem) {
  const Task task = recorded().tasks[0], precise = without_tf32(task);
  EXPECT_NE(describe_tasks({&task, 1}), describe_tasks({&precise, 1}));
}

TEST_F(ConvolutionSettings, OnlySinglePrecisionIsRounded) {
  EXPECT_FALSE(may_round_to_tf32(recorded(at::kDouble).tasks[0]));
  EXPECT_FALSE(may_round_to_tf32(recorded(at::kBFloat16).tasks[0]));
}

TEST_F(ConvolutionSettings, OtherTasksAreLeftAlone) {
  const Task relu = recorded().tasks[1];
  EXPECT_FALSE(may_round_to_tf32(relu));
  EXPECT_EQ(unsearched(relu).op, relu.op);
  EXPECT_EQ(without_tf32(relu).op, relu.op);
}

TEST_F(ConvolutionSettings, WhereOnlyTheFormMattersAToldConvolutionIsNotRunEither) {
  const Task task = recorded().tasks[0], told = without_tf32(task);
  for (const Task& convolution : {task, told}) {
    const auto stand_in = unrun(convolution.op);
    EXPECT_NE(stand_in, convolution.op);
    EXPECT_EQ(stand_in.schema().arguments().size(), convolution.arguments.size());
    EXPECT_EQ(run_again(stand_in), convolution.op);
  }
}

}  // namespace
}  // namespace nimble
