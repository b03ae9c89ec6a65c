#include <random>

#include "cuda/forced.h"

namespace nimble {
namespace {

class MergeLinears : public RewriteTest {
 protected:
  const Tensors inputs_ = {torch::randn({4, 6})};
  const at::Tensor a_ = torch::randn({8, 6}), b_ = torch::randn({8, 6}), c_ = torch::randn({4, 6});
  const Tensors squares_ = {torch::randn({8, 8}) / 3, torch::randn({8, 8}) / 3, torch::randn({8, 8}) / 3};
  const at::Tensor bias_a_ = torch::randn({8}), bias_b_ = torch::randn({8}), bias_c_ = torch::randn({4});

  static std::size_t merged(const Function& function, const Tensors& inputs) {
    const Forced result = forced(function, inputs, kMergeLinears);
    expect_same(result.program, function, inputs);
    return result.sites.size();
  }
};

TEST_F(MergeLinears, OnTheSameInputBecomeOne) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_, bias_a_) * at::linear(in[0], b_, bias_b_)};
  };
  const Forced result = forced(function, inputs_, kMergeLinears);
  EXPECT_EQ(result.sites, std::vector<std::string>{"addmm#0 and addmm#1"});
  EXPECT_EQ(drawn(result.program), R"(
%0 = addmm(derived0, input0, derived1)
%1 = mul(%0, %0)
return %1
)");
  expect_same(result.program, function, inputs_);
}

TEST_F(MergeLinears, AlsoWithoutABiasAndOfDifferentWidths) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_) * 2, at::linear(in[0], b_).sin(), at::linear(in[0], c_).cos()};
  };
  const Forced result = forced(function, inputs_, kMergeLinears);
  EXPECT_EQ(drawn(result.program), R"(
%0 = mm(input0, derived0)
%1 = mul(%0)
%2 = sin(%0)
%3 = cos(%0)
return %1 %2 %3
)");
  expect_same(result.program, function, inputs_);
}

// As attention looks at them: heads of some columns each, and their transposes.
TEST_F(MergeLinears, ResultsAreReadAsViewsOfTheWhole) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const auto heads = [&](const at::Tensor& weight, const at::Tensor& bias) {
      return at::linear(in[0], weight, bias).view({1, 4, 2, 4}).transpose(1, 2);
    };
    const at::Tensor q = heads(a_, bias_a_), k = heads(b_, bias_b_);
    return {at::matmul(q, k.transpose(-2, -1)).softmax(-1)};
  };
  EXPECT_EQ(merged(function, inputs_), 1u);
}

TEST_F(MergeLinears, FollowTheirWeights) {
  const at::Tensor weight = a_.clone();
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], weight, bias_a_) - at::linear(in[0], b_, bias_b_)};
  };
  const Forced result = forced(function, inputs_, kMergeLinears);
  ASSERT_EQ(result.sites.size(), 1u);
  weight.mul_(3);
  derive_all(result.program);
  expect_same(result.program, function, inputs_);
}

TEST_F(MergeLinears, NotOnOtherInputsOrOnlySometimesWithABias) {
  const Function other_input = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_, bias_a_) * at::linear(in[0] * 2, b_, bias_b_)};
  };
  const Function other_rows = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0].slice(0, 0, 2), a_, bias_a_) * at::linear(in[0].slice(0, 2, 4), b_, bias_b_)};
  };
  const Function one_bias = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_, bias_a_) * at::linear(in[0], b_)};
  };
  for (const Function& function : {other_input, other_rows, one_bias})
    EXPECT_EQ(merged(function, inputs_), 0u);
}

TEST_F(MergeLinears, NotWhereAResultIsWantedAsAWhole) {
  const Function returned = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], a_, bias_a_);
    return {y, y * at::linear(in[0], b_, bias_b_)};
  };
  const Function across_rows = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_, bias_a_).view(-1).sin(), at::linear(in[0], b_, bias_b_).sin()};
  };
  const Function pairs_of_rows = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_, bias_a_).view({2, 16}).sum(0), at::linear(in[0], b_, bias_b_).sin()};
  };
  for (const Function& function : {returned, across_rows, pairs_of_rows}) {
    EXPECT_EQ(merged(function, inputs_), 0u);
  }
}

// Kernels that read 16 bytes at once would read columns that begin elsewhere one by one.
TEST_F(MergeLinears, NotWhereColumnsWouldBeginAnywhere) {
  const at::Tensor odd = torch::randn({7, 6});
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], odd).sin(), at::linear(in[0], odd * 1).cos()};
  };
  EXPECT_EQ(merged(function, inputs_), 0u);
}

// They take what they are given for one stretch of memory.
TEST_F(MergeLinears, NotWhereAnOperatorMayNotGoByStrides) {
  const Function grouped = [&](const Tensors& in) -> Tensors {
    return {at::group_norm(at::linear(in[0], a_, bias_a_).view({4, 8, 1}), 2),
            at::linear(in[0], b_, bias_b_).sin()};
  };
  const Function distances = [&](const Tensors& in) -> Tensors {
    return {at::pdist(at::linear(in[0], a_, bias_a_)), at::linear(in[0], b_, bias_b_).sin()};
  };
  for (const Function& function : {grouped, distances}) EXPECT_EQ(merged(function, inputs_), 0u);
}

// As autocast does it: each weight is brought to the type of the product right before it.
TEST_F(MergeLinears, WeightsThatAreMadeLaterAreMadeSooner) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].to(at::kDouble);
    const auto linear = [&](const at::Tensor& weight, const at::Tensor& bias) {
      return at::linear(x, weight.to(at::kDouble), bias.to(at::kDouble));
    };
    return {linear(a_, bias_a_).sin(), linear(b_, bias_b_).cos(), linear(c_, bias_c_).exp()};
  };
  const Forced result = forced(function, inputs_, kMergeLinears);
  EXPECT_EQ(drawn(result.program), R"(
%0 = _to_copy(input0)
%1 = addmm(derived0, %0, derived1)
%2 = sin(%1)
%3 = cos(%1)
%4 = exp(%1)
return %2 %3 %4
)");
  expect_same(result.program, function, inputs_);
}

TEST_F(MergeLinears, NotIntoATensorThatIsGiven) {
  const Function function = [&](const Tensors& in) -> Tensors {
    at::Tensor out = at::empty({4, 8});
    at::mm_out(out, in[0], a_.t());
    return {out.sin(), at::mm(in[0], b_.t()).sin(), at::mm(in[0], c_.t()).cos()};
  };
  EXPECT_EQ(merged(function, inputs_), 1u);
}

TEST_F(MergeLinears, NotWithFactors) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::addmm(bias_a_, in[0], a_.t(), 1, 0.5) * at::addmm(bias_b_, in[0], b_.t(), 1, 0.5)};
  };
  EXPECT_EQ(merged(function, inputs_), 0u);
}

TEST_F(MergeLinears, NotWhereAnActivationCanBecomePartOfTheProduct) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_, bias_a_).relu() * at::linear(in[0], b_, bias_b_).relu()};
  };
  EXPECT_EQ(merged(function, inputs_), 0u);
}

TEST_F(MergeLinears, NotIfSomebodyWritesToTheInputOrAWeight) {
  const at::Tensor weight = b_.clone();
  const Function writes_input = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2;
    const at::Tensor y = at::linear(x, a_, bias_a_);
    x.select(0, 0).zero_();
    return {y * at::linear(x, b_, bias_b_)};
  };
  const Function writes_weight = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], a_, bias_a_);
    weight.add_(1e-3);
    return {y * at::linear(in[0], weight, bias_b_)};
  };
  EXPECT_EQ(merged(writes_input, inputs_), 0u);
  EXPECT_TRUE(forced(writes_weight, inputs_, kMergeLinears).sites.empty());
}

TEST_F(MergeLinears, NotIfSomebodyWritesToAResult) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], a_, bias_a_);
    y.select(0, 0).zero_();
    return {y * at::linear(in[0], b_, bias_b_)};
  };
  EXPECT_EQ(merged(function, inputs_), 0u);
}

TEST_F(MergeLinears, NotWithWeightsOrABiasFromTheCaller) {
  const Tensors inputs = {inputs_[0], b_.clone(), bias_b_.clone()};
  const Function weight = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_, bias_a_) * at::linear(in[0], in[1], bias_b_)};
  };
  const Function bias = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], a_, bias_a_) * at::linear(in[0], b_, in[2])};
  };
  for (const Function& function : {weight, bias}) EXPECT_EQ(merged(function, inputs), 0u);
}

TEST_F(MergeLinears, RandomProgramsGiveWhatEagerGives) {
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      std::mt19937 random(seed);
      Tensors values = {in[0] * 2};
      const auto pick = [&]() -> const at::Tensor& { return values[random() % values.size()]; };
      for (int i = 0; i < 12; ++i) {
        const at::Tensor& weight = squares_[random() % squares_.size()];
        switch (random() % 7) {
          case 0:
          case 1:
            values.push_back(at::linear(pick(), weight, bias_b_));
            break;
          case 2:
            values.push_back(at::linear(pick(), weight.t()));
            break;
          case 3:
            values.push_back(pick().view({2, 2, 2, 4}).transpose(1, 2).reshape({4, 8}));
            break;
          case 4:
            values.push_back(pick() + pick().select(0, 1));
            break;
          case 5:
            values.push_back((pick() * 2).sin_());
            break;
          case 6:
            values.back().select(0, 0).sin_();
            break;
        }
      }
      return {values.back() * 1, values[values.size() / 2] * 1};
    };
    SCOPED_TRACE(seed);
    const Tensors inputs = {torch::randn({4, 8})};
    const Forced result = forced(function, inputs, kMergeLinears);
    fired += result.sites.size();
    expect_same(result.program, function, inputs);
  }
  EXPECT_GT(fired, 20u);
}

}  // namespace
}  // namespace nimble
