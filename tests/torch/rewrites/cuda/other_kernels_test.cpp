#include "nimble/torch/rewrites/cuda/other_kernels.h"

#include "../../called.h"
#include "../rewritten.h"
#include "nimble/torch/rewrites/cuda/slices.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

class OtherKernels : public RewriteTest {
 protected:
  // The one task of a program that calls this operator on an image and filters of one pixel.
  Task matrix(std::int64_t candidate, bool tf32 = false) const {
    return task_of("nimble::matrix_convolution", "",
                   {image_, weight_, bias_, c10::IValue(), "relu", candidate, c10::IValue(), c10::IValue(),
                    one_, zero_, one_, "none", "none", tf32});
  }
  Task task_of(const char* name, const char* overload, torch::jit::Stack arguments) const {
    const Program program = record({image_}, [&](const Tensors& in) -> Tensors {
      arguments[0] = in[0];
      return {call_operator(name, overload, arguments)};
    });
    EXPECT_EQ(program.tasks.size(), 1u);
    return program.tasks[0];
  }

  static std::vector<std::string> names_of(const std::vector<Task>& tasks) {
    std::vector<std::string> names;
    for (const Task& task : tasks) names.push_back(kernel_name(task));
    return names;
  }
  using Names = std::vector<std::string>;

  at::Tensor image_ = torch::randn({1, 8, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  at::Tensor weight_ = torch::randn({4, 8, 1, 1}), bias_ = torch::randn({4});
  std::vector<std::int64_t> one_ = {1, 1}, zero_ = {0, 0};
};

TEST_F(OtherKernels, AreTheOtherTilesOfAProduct) {
  EXPECT_EQ(names_of(other_kernels(matrix(0))), (Names{"1", "2", "3"}));
  EXPECT_EQ(names_of(other_kernels(matrix(2))), (Names{"0", "1", "3"}));
  EXPECT_EQ(names_of(other_kernels(matrix(7))), (Names{"0", "1", "2", "3"})) << "whoever chose it knew why";
}

TEST_F(OtherKernels, NeverRoundMore) {
  for (const Task& other : other_kernels(matrix(1)))
    EXPECT_EQ(kernel_name(other).find("TF32"), std::string::npos);
  EXPECT_EQ(names_of(other_kernels(matrix(1, /*tf32=*/true))),
            (Names{"0 by TF32", "2 by TF32", "3 by TF32", "1"}));
}

TEST_F(OtherKernels, AreThoseThatLibrariesPropose) {
  const Task cublas = task_of("nimble::pointwise_convolution", "",
                              {image_, weight_, bias_, c10::IValue(), "relu", std::int64_t{1}});
  EXPECT_EQ(names_of(other_kernels(cublas)), (Names{"0", "2", "3"}));
  const Task cudnn = task_of(
      "nimble::fused_convolution", "",
      {image_, weight_, bias_, c10::IValue(), one_, zero_, one_, std::int64_t{1}, "silu", std::int64_t{0}});
  EXPECT_EQ(names_of(other_kernels(cudnn)), (Names{"1", "2"}));
}

TEST_F(OtherKernels, AreTheOtherWaysToDivideTheWorkOfADepthwiseConvolution) {
  const at::Tensor filters = torch::randn({8, 1, 3, 3});
  const Task task =
      task_of("nimble::depthwise_convolution", "",
              {image_, filters, c10::IValue(), one_, one_, one_, "none", "relu", std::int64_t{1}});
  EXPECT_EQ(names_of(other_kernels(task)), (Names{"0"}));
}

TEST_F(OtherKernels, AlsoOfATaskThatWritesIntoASlice) {
  at::Tensor whole;
  const Program program = record({image_}, [&](const Tensors& in) -> Tensors {
    whole = at::empty({1, 12, 5, 5}, at::MemoryFormat::ChannelsLast);
    whole.slice(1, 0, 8).copy_(in[0]);
    call_operator("nimble::matrix_convolution", "out",
                  {in[0], weight_, bias_, c10::IValue(), "relu", std::int64_t{0}, c10::IValue(),
                   c10::IValue(), one_, zero_, one_, "none", "none", false, whole.slice(1, 8, 12)});
    return {whole};
  });
  const Task& task = program.tasks.back();
  ASSERT_EQ(task.op.operator_name().overload_name, "out");
  EXPECT_EQ(names_of(other_kernels(task)), (Names{"1", "2", "3"}));
}

TEST_F(OtherKernels, DifferInTheirNumberAlone) {
  const Task task = matrix(0);
  const std::size_t number = *argument_named(task.op, "candidate");
  for (Task other : other_kernels(task)) {
    EXPECT_EQ(other.op, task.op);
    EXPECT_EQ(other.results.size(), task.results.size());
    EXPECT_EQ(std::get<TensorRef>(other.results[0]), std::get<TensorRef>(task.results[0]));
    EXPECT_EQ(other.reads, task.reads);
    EXPECT_EQ(other.writes, task.writes);
    EXPECT_EQ(other.allocations.size(), task.allocations.size());
    EXPECT_NE(describe_tasks({&other, 1}), describe_tasks({&task, 1}));
    other.arguments[number] = task.arguments[number];
    EXPECT_EQ(describe_tasks({&other, 1}), describe_tasks({&task, 1}));
  }
}

TEST_F(OtherKernels, ThereAreNoneOfWhatHasNoChoice) {
  const Program program = record({image_}, [&](const Tensors& in) -> Tensors {
    const at::Tensor pooled = call_operator("nimble::avg_pool2d", "",
                                            {in[0], one_, one_, zero_, false, true, c10::IValue(), "none"});
    return {at::conv2d(pooled, weight_).relu()};
  });
  ASSERT_EQ(program.tasks.size(), 3u);
  for (const Task& task : program.tasks) {
    EXPECT_TRUE(other_kernels(task).empty()) << task.op.operator_name();
    EXPECT_EQ(kernel_name(task), "");
  }
}

}  // namespace
}  // namespace nimble
