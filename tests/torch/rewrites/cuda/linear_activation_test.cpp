#include "../random_linears.h"
#include "forced.h"

namespace nimble {
namespace {

class LinearActivation : public RewriteTest {
 protected:
  const Tensors inputs_ = {torch::randn({4, 6})};
  const at::Tensor weight_ = torch::randn({5, 6}), bias_ = torch::randn({5});
};

TEST_F(LinearActivation, BecomesPartOfTheProduct) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], weight_, bias_).relu()};
  };
  const Forced result = forced(function, inputs_, kLinearActivation);
  EXPECT_EQ(drawn(result.program), R"(
%0 = _addmm_activation(extern0, input0, extern1)
return %0
)");
  expect_same(result.program, function, inputs_);
}

TEST_F(LinearActivation, NotAnotherActivationAndNotIfOthersReadTheProduct) {
  const Function other = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], weight_, bias_).sigmoid()};
  };
  const Function exact_gelu = [&](const Tensors& in) -> Tensors {
    return {at::gelu(at::linear(in[0], weight_, bias_))};
  };
  const Function shared = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], weight_, bias_);
    return {y.relu(), y};
  };
  for (const Function& function : {other, exact_gelu, shared}) {
    EXPECT_TRUE(forced(function, inputs_, kLinearActivation).sites.empty());
  }
}

// cuBLASLt's gelu is not as exact as float32.
TEST_F(LinearActivation, GeluByTanhOnlyWhereTheProductRoundsMore) {
  const Tensors half = {inputs_[0].to(at::kBFloat16)};
  const at::Tensor weight = weight_.to(at::kBFloat16), bias = bias_.to(at::kBFloat16);
  const Function in_float = [&](const Tensors& in) -> Tensors {
    return {at::gelu(at::linear(in[0], weight_, bias_), "tanh")};
  };
  const Function in_half = [&](const Tensors& in) -> Tensors {
    return {at::gelu(at::linear(in[0], weight, bias), "tanh")};
  };
  EXPECT_TRUE(forced(in_float, inputs_, kLinearActivation).sites.empty());
  EXPECT_EQ(forced(in_half, half, kLinearActivation).sites.size(), 1u);
  at::globalContext().setAllowTF32CuBLAS(true);
  EXPECT_EQ(forced(in_float, inputs_, kLinearActivation).sites.size(), 1u);
  at::globalContext().setAllowTF32CuBLAS(false);
}

TEST_F(LinearActivation, NotWithFactorsOrAnotherBias) {
  const at::Tensor rows = torch::randn({4, 1});
  const Function halved = [&](const Tensors& in) -> Tensors {
    return {at::addmm(bias_, in[0], weight_.t(), 1, 0.5).relu()};
  };
  const Function by_row = [&](const Tensors& in) -> Tensors {
    return {at::addmm(rows, in[0], weight_.t()).relu()};
  };
  for (const Function& function : {halved, by_row}) {
    EXPECT_TRUE(forced(function, inputs_, kLinearActivation).sites.empty());
  }
}

TEST_F(LinearActivation, NotIfAWeightOrTheBiasIsWrittenBeforeTheActivation) {
  for (const at::Tensor& written : {weight_, bias_}) {
    const Function function = [&](const Tensors& in) -> Tensors {
      const at::Tensor y = at::linear(in[0], weight_, bias_);
      written.mul_(0.5);
      return {y.relu()};
    };
    EXPECT_TRUE(forced(function, inputs_, kLinearActivation).sites.empty());
  }
}

TEST_F(LinearActivation, NotIfItsInputIsWrittenBeforeTheActivation) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2;
    const at::Tensor y = at::linear(x, weight_, bias_);
    x.select(0, 0).zero_();
    return {y.relu(), x};
  };
  const Forced result = forced(function, inputs_, kLinearActivation);
  EXPECT_TRUE(result.sites.empty());
  expect_same(result.program, function, inputs_);
}

TEST_F(LinearActivation, NotIfTheProductIsWrittenOrSeenThroughAView) {
  const Function written = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], weight_, bias_);
    y.select(0, 0).zero_();
    return {y.relu()};
  };
  const Function part = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], weight_, bias_).slice(0, 0, 2).relu()};
  };
  const Function turned = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], weight_, bias_).t().relu()};
  };
  const Function in_place_on_a_part = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], weight_, bias_);
    y.slice(0, 0, 2).relu_();
    return {y + 1};
  };
  for (const Function& function : {written, part, turned, in_place_on_a_part}) {
    EXPECT_TRUE(forced(function, inputs_, kLinearActivation).sites.empty());
  }
}

TEST_F(LinearActivation, NotIntoOrOutOfATensorThatIsGiven) {
  const Function activation = [&](const Tensors& in) -> Tensors {
    const at::Tensor both = torch::zeros({8, 5});
    at::Tensor half = both.slice(0, 0, 4);
    at::relu_out(half, at::linear(in[0], weight_, bias_));
    return {both + 1};
  };
  const Function product = [&](const Tensors& in) -> Tensors {
    at::Tensor made = torch::empty({4, 5});
    at::addmm_out(made, bias_, in[0], weight_.t());
    return {made.relu()};
  };
  for (const Function& function : {activation, product}) {
    EXPECT_TRUE(forced(function, inputs_, kLinearActivation).sites.empty());
  }
}

TEST_F(LinearActivation, RandomProgramsGiveWhatEagerGives) {
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    // Without the approximation by tanh, which is what the fused call gives on a GPU, but not on a CPU.
    const RandomLinears function(seed, "none");
    SCOPED_TRACE(seed);
    const Forced result = forced(function, function.inputs(), kLinearActivation);
    fired += result.sites.size();
    expect_same(result.program, function, function.inputs());
  }
  EXPECT_GT(fired, 50u);
}

}  // namespace
}  // namespace nimble
