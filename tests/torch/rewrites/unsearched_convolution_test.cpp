#include "nimble/torch/rewrites/unsearched_convolution.h"

#include "rewritten.h"

namespace nimble {
namespace {

using UnsearchedConvolution = RewriteTest;

TEST_F(UnsearchedConvolution, ComputesTheSameWithoutCudnnsSearch) {
  const at::Tensor weight = torch::randn({4, 3, 3, 3}), bias = torch::randn({4});
  const auto function = [&](const Tensors& in) -> Tensors {
    return {at::conv2d(in[0], weight, bias, {2, 2}, {1, 1}).relu()};
  };
  const Tensors image = {torch::randn({2, 3, 9, 9})};
  Program program = record(image, function);
  for (Task& task : program.tasks) task = unsearched(std::move(task));

  const Task& convolution = program.tasks[0];
  EXPECT_EQ(convolution.op.operator_name().name, "aten::_convolution");
  for (std::size_t i = 0; i < convolution.arguments.size(); ++i) {
    if (convolution.op.schema().arguments()[i].name() != "benchmark") continue;
    EXPECT_FALSE(std::get<c10::IValue>(convolution.arguments[i]).toBool());
  }
  EXPECT_TRUE(at::equal(run(program, image)[0], function(image)[0]));
}

TEST_F(UnsearchedConvolution, LeavesOtherTasksAlone) {
  const Program program =
      record({torch::randn({4})}, [](const Tensors& in) -> Tensors { return {in[0].exp()}; });
  EXPECT_EQ(unsearched(program.tasks[0]).op, program.tasks[0].op);
}

}  // namespace
}  // namespace nimble
