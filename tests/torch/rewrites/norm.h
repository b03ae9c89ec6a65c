#pragma once

#include <torch/torch.h>

namespace nimble {

// A batch norm of these channels that has learned something.
struct Norm {
  at::Tensor gamma, beta, mean, variance;
  explicit Norm(std::int64_t channels)
      : gamma(torch::rand({channels}) + 0.5),
        beta(torch::randn({channels})),
        mean(torch::randn({channels})),
        variance(torch::rand({channels}) + 0.5) {}
  Norm to(at::ScalarType type) const {
    Norm other = *this;
    for (at::Tensor* tensor : {&other.gamma, &other.beta, &other.mean, &other.variance}) {
      *tensor = tensor->to(type);
    }
    return other;
  }
  at::Tensor operator()(const at::Tensor& x, bool training = false) const {
    return at::batch_norm(x, gamma, beta, mean, variance, training, 0.1, 1e-5, false);
  }
};

}  // namespace nimble
