#pragma once

#include <random>

#include "rewritten.h"

namespace nimble {

// A random program of linear layers with every activation, in place and not, with other readers, views and
// other products between them. The same at each call.
class RandomLinears {
 public:
  RandomLinears(std::uint64_t seed, const char* gelu) : seed_(seed), gelu_(gelu) {}

  static Tensors inputs() { return {torch::randn({4, 6})}; }

  Tensors operator()(const Tensors& in) const {
    std::mt19937 random(seed_);
    Tensors values = {in[0] * 2};  // never the argument in place
    const auto pick = [&]() -> const at::Tensor& { return values[random() % values.size()]; };
    const auto linear = [&] { return at::linear(pick(), weight_, bias_); };
    for (int i = 0; i < 10; ++i) {
      switch (random() % 10) {
        case 0:
          values.push_back(linear());
          break;
        case 1:
          values.push_back(linear().relu());
          break;
        case 2:
          values.push_back(linear().relu_());
          break;
        case 3:
          values.push_back(at::gelu(linear(), gelu_));
          break;
        case 4:
          values.push_back(at::gelu(linear()));
          break;
        case 5:
          values.push_back(at::relu_(values.back()));
          break;
        case 6:
          values.push_back(at::linear(pick(), weight_).relu());
          break;
        case 7:
          values.push_back(at::addmm(pick(), pick(), weight_).relu());
          break;
        case 8:
          values.push_back(linear().t().relu().t().contiguous());
          break;
        case 9:
          values.push_back(pick() + pick().select(0, 1));
          break;
      }
    }
    return {values.back() * 1, values[values.size() / 2] * 1};
  }

 private:
  std::uint64_t seed_;
  const char* gelu_;  // how the first of two is approximated
  at::Tensor weight_ = torch::randn({6, 6}) / 3, bias_ = torch::randn({6});
};

}  // namespace nimble
