#include "nimble/torch/rewrites/activations.h"

#include <limits>

#include "measured.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Activations : public RewriteTest {
 protected:
  // Of the function that follows a linear layer, on numbers that include the infinite ones.
  Program with_onednn(const Function& function) const {
    return rewritten_where_faster(function, numbers_, {"mkldnn_linear"}, measured(1, 100));
  }
  at::Tensor layer(const Tensors& in) const { return at::linear(in[0], weight_, bias_); }

  const Tensors numbers_ = {torch::tensor({{kInfinity}, {-kInfinity}, {3e38f}, {-3e38f}, {2.f}, {-0.5f}})};
  const at::Tensor weight_ = torch::ones({4, 1}), bias_ = torch::zeros({4});
};

TEST_F(Activations, WhereABoundIsOpenInfinityStaysInfinity) {
  const std::vector<Function> functions = {
      [&](const Tensors& in) -> Tensors { return {at::clamp(layer(in), 0)}; },
      [&](const Tensors& in) -> Tensors { return {at::clamp(layer(in), std::nullopt, 1)}; },
  };
  for (const Function& function : functions) {
    const Program program = with_onednn(function);
    EXPECT_EQ(operators(program), std::vector<std::string>{"nimble::mkldnn_linear"});
    EXPECT_TRUE(at::equal(run(program, numbers_)[0], function(numbers_)[0])) << run(program, numbers_)[0];
  }
}

TEST_F(Activations, BoundsThatCrossOrAreNoNumbersAreLeftToPyTorch) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Function> functions = {
      [&](const Tensors& in) -> Tensors { return {at::clamp(layer(in), 2, 1)}; },
      [&](const Tensors& in) -> Tensors { return {at::clamp(layer(in), nan, 1)}; },
  };
  for (const Function& function : functions) {
    const Program program = with_onednn(function);
    EXPECT_EQ(operators(program), (std::vector<std::string>{"nimble::mkldnn_linear", "aten::clamp"}));
    EXPECT_TRUE(at::allclose(run(program, numbers_)[0], function(numbers_)[0], 0, 0, /*equal_nan=*/true));
  }
}

}  // namespace
}  // namespace nimble
