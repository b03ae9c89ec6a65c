// Trains a small convolutional network, written with LibTorch, twice from the same seed: eagerly, and with
// the whole step (forward, loss, backward, optimizer) compiled into one schedule. Both must end with the same
// bits.
#include <nimble/nimble.h>
#include <torch/torch.h>

#include <chrono>
#include <iomanip>
#include <iostream>

using nimble::Tensors;

namespace {

constexpr int kSteps = 60, kBatch = 32, kClasses = 4;

torch::nn::Sequential make_network() {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(1, 8, 3).padding(1)), BatchNorm2d(8), ReLU(), MaxPool2d(2),
                    Conv2d(Conv2dOptions(8, 16, 3).padding(1)), BatchNorm2d(16), ReLU(), AdaptiveAvgPool2d(2),
                    Flatten(), Dropout(0.1), Linear(64, kClasses));
}

// Noise with one bright quarter; which one is the class.
std::pair<at::Tensor, at::Tensor> make_batch() {
  const at::Tensor labels = torch::randint(kClasses, {kBatch});
  at::Tensor pictures = torch::randn({kBatch, 1, 16, 16});
  for (int i = 0; i < kBatch; ++i) {
    const auto quarter = labels[i].item<int>();
    pictures[i][0]
        .slice(0, quarter / 2 * 8, quarter / 2 * 8 + 8)
        .slice(1, quarter % 2 * 8, quarter % 2 * 8 + 8) += 1;
  }
  return {pictures, labels};
}

struct Outcome {
  std::vector<float> losses;
  Tensors parameters;
  double milliseconds = 0;
};

Outcome train(bool compiled) {
  torch::manual_seed(0);
  auto net = make_network();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const nimble::TensorFunction step = [&](const Tensors& batch) -> Tensors {
    optimizer.zero_grad();
    const at::Tensor loss = torch::cross_entropy_loss(net->forward(batch[0]), batch[1]);
    loss.backward();
    optimizer.step();
    return {loss.detach()};
  };
  const auto fast = nimble::compile(step, {}, nimble::watch(net, optimizer));

  Outcome outcome;
  for (int i = 0; i < kSteps; ++i) {
    const auto [pictures, labels] = make_batch();
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor loss = compiled ? fast({pictures, labels})[0] : step({pictures, labels})[0];
    outcome.milliseconds +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    outcome.losses.push_back(loss.item<float>());
    if (compiled && i % 10 == 9) {
      std::cout << "step " << std::setw(2) << i + 1 << "  loss " << outcome.losses.back() << '\n';
    }
  }
  outcome.parameters = net->parameters();
  if (compiled) std::cout << fast.explain();
  return outcome;
}

}  // namespace

int main() {
  const Outcome eager = train(false), nimble = train(true);
  bool same = eager.losses == nimble.losses;
  for (std::size_t i = 0; i < eager.parameters.size(); ++i) {
    same = same && at::equal(eager.parameters[i], nimble.parameters[i]);
  }
  const bool learned = nimble.losses.back() < nimble.losses.front() / 2;
  std::cout << "eager " << eager.milliseconds / kSteps << " ms a step, Nimble "
            << nimble.milliseconds / kSteps
            << " ms with its preparation\nlearned: " << (learned ? "yes" : "no")
            << "\nsame bits as eager: " << (same ? "yes" : "no") << '\n';
  return same && learned ? 0 : 1;
}
