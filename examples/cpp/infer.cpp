// Compiles a small branchy network written with LibTorch and compares it with eager execution.
#include <nimble/nimble.h>
#include <torch/torch.h>

#include <iostream>

using nimble::Tensors;

// Four branches over one input, joined: what a scheduler can run side by side.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int channels) {
    for (int kernel : {1, 3, 5, 7}) {
      branches->push_back(
          torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels / 4, kernel).padding(kernel / 2)));
    }
    register_module("branches", branches);
  }
  at::Tensor forward(const at::Tensor& x) {
    Tensors parts;
    for (const auto& branch : *branches)
      parts.push_back(torch::relu(branch->as<torch::nn::Conv2d>()->forward(x)));
    return torch::cat(parts, 1);
  }
  torch::nn::ModuleList branches;
};
TORCH_MODULE(Block);

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential net(Block(16), Block(16), Block(16));
  net->eval();
  const torch::NoGradGuard no_grad;

  auto fast = nimble::compile([&](const Tensors& in) -> Tensors { return {net->forward(in[0])}; },
                              nimble::CompileOptions{}, nimble::watch(net));
  bool same = true;
  for (int i = 0; i < 10; ++i) {
    const at::Tensor x = torch::randn({1, 16, 32, 32});
    const at::Tensor y = fast({x})[0];
    same = same && at::equal(y, net->forward(x));
  }
  std::cout << fast.explain();
  std::cout << "same bits as eager: " << (same ? "yes" : "no") << '\n';
  return same ? 0 : 1;
}
