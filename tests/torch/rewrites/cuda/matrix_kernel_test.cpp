#include "nimble/torch/rewrites/cuda/matrix_kernel.h"

#include "forced.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/edit.h"

namespace nimble {
namespace {

class MatrixKernel : public RewriteTest {
 protected:
  // A program of one convolution, which is made a call of `op` with these arguments.
  static std::optional<ConvolutionCall> call_of(const char* op, std::vector<Operand> arguments,
                                                const Program& program) {
    Edit edit(program);
    edit.replace(TaskId{0}, find_operator(op), std::move(arguments), program.tasks[0].results);
    const Program changed = std::move(edit).finish();
    return convolution_call(changed.tasks[0], Uses(changed));
  }
  static Program one_convolution() {
    const at::Tensor weight = torch::randn({8, 16, 3, 3});
    return record({torch::randn({1, 16, 6, 6})}, [=](const Tensors& in) -> Tensors {
      return {at::conv2d(in[0], weight, {}, {2, 1}, {1, 0})};
    });
  }
};

TEST_F(MatrixKernel, KnowsWhatAPlainConvolutionDoes) {
  const Program program = one_convolution();
  const auto call = convolution_call(program.tasks[0], Uses(program));
  ASSERT_TRUE(call);
  EXPECT_EQ(call->after, "none");
  EXPECT_FALSE(call->added);
  EXPECT_EQ(call->convolution.stride, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(call->convolution.padding, (std::vector<std::int64_t>{1, 0}));
}

TEST_F(MatrixKernel, KnowsWhatCudnnDoesInOneCall) {
  const Program program = one_convolution();
  const TensorRef x = *tensor_argument(program.tasks[0], 0), weight = *tensor_argument(program.tasks[0], 1);
  const std::vector<std::int64_t> stride = {2, 1}, padding = {1, 0}, dilation = {1, 1};
  const Operand none = c10::IValue();
  const auto relu = call_of(
      "aten::cudnn_convolution_relu",
      {x, weight, none, c10::IValue(stride), c10::IValue(padding), c10::IValue(dilation), c10::IValue(1)},
      program);
  ASSERT_TRUE(relu);
  EXPECT_EQ(relu->after, "relu");
  EXPECT_FALSE(relu->added);
  EXPECT_EQ(relu->convolution.weight, weight);
  EXPECT_EQ(relu->convolution.stride, stride);
  EXPECT_EQ(relu->convolution.padding, padding);
  EXPECT_EQ(relu->convolution.groups, 1);

  const auto sum = [&](c10::IValue factor) {
    return call_of("aten::cudnn_convolution_add_relu",
                   {x, weight, first_result(program.tasks[0]), std::move(factor), none, c10::IValue(stride),
                    c10::IValue(padding), c10::IValue(dilation), c10::IValue(1)},
                   program);
  };
  for (const c10::IValue& one : {c10::IValue(1.0), c10::IValue()}) {
    ASSERT_TRUE(sum(one));
    EXPECT_EQ(sum(one)->added, first_result(program.tasks[0]));
    EXPECT_EQ(sum(one)->convolution.dilation, dilation);
  }
  EXPECT_FALSE(sum(2.0)) << "what is added is scaled";
}

TEST_F(MatrixKernel, KnowsWhatOurOwnCallsDo) {
  const Program program = one_convolution();
  const TensorRef x = *tensor_argument(program.tasks[0], 0), weight = *tensor_argument(program.tasks[0], 1),
                  sum = first_result(program.tasks[0]);
  const std::vector<std::int64_t> stride = {2, 1}, padding = {1, 0}, dilation = {1, 1};
  const Operand none = c10::IValue(), silu = c10::IValue("silu"), zero = c10::IValue(0);
  const auto product = call_of("nimble::pointwise_convolution", {x, weight, none, sum, silu, zero}, program);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->after, "silu");
  EXPECT_EQ(product->added, sum);
  EXPECT_EQ(product->convolution.stride, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(product->convolution.padding, (std::vector<std::int64_t>{0, 0}));

  const auto by_cudnn = call_of("nimble::fused_convolution",
                                {x, weight, none, none, c10::IValue(stride), c10::IValue(padding),
                                 c10::IValue(dilation), c10::IValue(2), silu, zero},
                                program);
  const auto by_our_kernel = [&](const Operand& filters) {
    return call_of(
        "nimble::matrix_convolution",
        {x, weight, none, none, silu, zero, filters, none, c10::IValue(stride), c10::IValue(padding),
         c10::IValue(dilation), c10::IValue("none"), c10::IValue("none"), c10::IValue(false)},
        program);
  };
  for (const auto& call : {by_cudnn, by_our_kernel(none)}) {
    ASSERT_TRUE(call);
    EXPECT_EQ(call->after, "silu");
    EXPECT_FALSE(call->added);
    EXPECT_EQ(call->convolution.weight, weight);
    EXPECT_EQ(call->convolution.stride, stride);
    EXPECT_EQ(call->convolution.padding, padding);
  }
  EXPECT_EQ(by_cudnn->convolution.groups, 2);
  EXPECT_FALSE(by_our_kernel(weight)) << "there is a depthwise convolution before it";
}

}  // namespace
}  // namespace nimble
