// nimble::compile of LibTorch programs on a GPU, as a graph and stream by stream.
#include <torch/torch.h>

#include "nimble/engine/compile.h"
#include "tests/support/gpu_test.h"

namespace nimble {
namespace {

class CompileOnCuda : public testing::GpuTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    torch::manual_seed(0);
    at::globalContext().setDeterministicCuDNN(true);
  }
  CompileOptions options() const { return {.strict = true, .graph = GetParam()}; }
};

struct Branches : torch::nn::Module {
  torch::nn::Conv2d left{register_module("left", torch::nn::Conv2d(3, 8, 3))},
      right{register_module("right", torch::nn::Conv2d(3, 8, 3))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(16 * 6 * 6, 4))};

  at::Tensor forward(const at::Tensor& x) {
    return last(torch::cat({torch::relu(left(x)), torch::sigmoid(right(x))}, 1).flatten(1));
  }
};

TEST_P(CompileOnCuda, AFunctionGivesEagersBitsOnInputsItWasNotRecordedWith) {
  const torch::NoGradGuard no_grad;
  Branches net;
  net.to(torch::kCUDA);
  const auto fast = compile([&](const Tensors& in) -> Tensors { return {net.forward(in[0])}; }, options());
  const auto picture = [] { return torch::randn({2, 3, 8, 8}, torch::kCUDA); };
  fast.prepare({picture()});
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = picture();
    EXPECT_TRUE(at::equal(fast({x})[0], net.forward(x))) << "call " << i;
  }
  EXPECT_EQ(fast.stats().replays, 5u);
}

TEST_P(CompileOnCuda, AStepOfTrainingGivesEagersBits) {
  const auto train = [&](bool compiled) {
    torch::manual_seed(1);
    auto net = std::make_shared<Branches>();
    net->to(torch::kCUDA);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    const TensorFunction step = [&](const Tensors& in) -> Tensors {
      optimizer.zero_grad();
      const at::Tensor loss = net->forward(torch::dropout(in[0], 0.2, true)).square().mean();
      loss.backward();
      optimizer.step();
      return {loss.detach()};
    };
    const auto fast = compile(step, {.graph = GetParam()}, watch(net, optimizer));
    Tensors seen;
    for (int i = 0; i < 10; ++i) {
      const at::Tensor x = torch::randn({4, 3, 8, 8}, torch::kCUDA);
      seen.push_back((compiled ? fast({x}) : step({x}))[0].clone());
    }
    for (const at::Tensor& parameter : net->parameters()) seen.push_back(parameter.detach().clone());
    if (compiled) {
      EXPECT_GE(fast.stats().replays, 5u) << fast.explain();
    }
    return seen;
  };
  const Tensors eager = train(false), replayed = train(true);
  ASSERT_EQ(eager.size(), replayed.size());
  for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(at::equal(eager[i], replayed[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Graph, CompileOnCuda, ::testing::Values(true));
INSTANTIATE_TEST_SUITE_P(StreamByStream, CompileOnCuda, ::testing::Values(false));

}  // namespace
}  // namespace nimble
