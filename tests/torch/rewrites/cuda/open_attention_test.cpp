#include "forced.h"
#include "random_values.h"

namespace nimble {
namespace {

class OpenAttention : public RewriteTest {
 protected:
  static constexpr std::int64_t kWidth = 8, kHeads = 2;
  const Tensors inputs_ = {torch::randn({2, 5, kWidth})};
  const at::Tensor weight_ = torch::randn({3 * kWidth, kWidth}) / 3, bias_ = torch::randn({3 * kWidth}),
                   last_weight_ = torch::randn({kWidth, kWidth}) / 3, last_bias_ = torch::randn({kWidth});

  at::Tensor attention(const at::Tensor& query, const at::Tensor& others,
                       const std::optional<at::Tensor>& mask = {}, bool needs_weights = false) const {
    return std::get<0>(at::_native_multi_head_attention(query, others, others, kWidth, kHeads, weight_, bias_,
                                                        last_weight_, last_bias_, mask, needs_weights));
  }
};

TEST_F(OpenAttention, BecomesTwoLinearLayersAndItsCore) {
  const Function function = [&](const Tensors& in) -> Tensors { return {attention(in[0], in[0])}; };
  const Forced result = forced(function, inputs_, kOpenAttention);
  EXPECT_EQ(drawn(result.program), R"(
%0 = addmm(extern0, input0, extern1)
%1 = scaled_dot_product_attention(%0, %0, %0)
%2 = addmm(extern2, %1, extern3)
return %2
)");
  expect_same(result.program, function, inputs_);
}

TEST_F(OpenAttention, ItsLinearLayersAreFoundByOtherRewrites) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {attention(in[0] + 1, in[0] + 1).relu()};
  };
  const Forced result = forced(function, inputs_, kMatrixLinear, {&kOpenAttention});
  EXPECT_EQ(result.sites.size(), 2u);
  expect_same(result.program, function, inputs_);
}

TEST_F(OpenAttention, NotToOthersNorWithAMaskNorWhereWeightsAreWanted) {
  const at::Tensor mask = torch::zeros({2, 5}).to(at::kBool);
  const Function to_others = [&](const Tensors& in) -> Tensors { return {attention(in[0], in[0].flip(0))}; };
  const Function masked = [&](const Tensors& in) -> Tensors {
    return {std::get<0>(at::_native_multi_head_attention(in[0], in[0], in[0], kWidth, kHeads, weight_, bias_,
                                                         last_weight_, last_bias_, mask, false, true, 1))};
  };
  const Function with_weights = [&](const Tensors& in) -> Tensors {
    return {attention(in[0], in[0], {}, true)};
  };
  for (const Function& function : {to_others, masked, with_weights}) {
    EXPECT_TRUE(forced(function, inputs_, kOpenAttention).sites.empty());
  }
}

TEST_F(OpenAttention, NotWithoutALastBiasNorWhereTensorCoresAreForbidden) {
  const Function unbiased = [&](const Tensors& in) -> Tensors {
    return {std::get<0>(at::_native_multi_head_attention(in[0], in[0], in[0], kWidth, kHeads, weight_, bias_,
                                                         last_weight_, at::Tensor(), {}, false))};
  };
  EXPECT_TRUE(forced(unbiased, inputs_, kOpenAttention).sites.empty());
  at::globalContext().setAllowTF32CuDNN(false);
  const Function plain = [&](const Tensors& in) -> Tensors { return {attention(in[0], in[0])}; };
  EXPECT_TRUE(forced(plain, inputs_, kOpenAttention).sites.empty());
  at::globalContext().setAllowTF32CuDNN(true);
}

TEST_F(OpenAttention, NotIfItsInputIsWritten) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2, y = attention(x, x);
    x.select(0, 0).zero_();
    return {y, x + 1};
  };
  EXPECT_TRUE(forced(function, inputs_, kOpenAttention).sites.empty());
}

// All that it consists of runs where it stood, so what is written before or behind makes no difference.
TEST_F(OpenAttention, WeightsAndItsResultMayBeWrittenByTheProgram) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor weight = weight_ * 0.5, last_bias = last_bias_ * 0.5;
    weight.select(0, 0).mul_(3);
    const at::Tensor y = std::get<0>(at::_native_multi_head_attention(
        in[0], in[0], in[0], kWidth, kHeads, weight, bias_, last_weight_, last_bias, {}, false));
    weight.zero_();
    last_bias.zero_();
    y.select(1, 0).mul_(2);
    return {y + weight.sum() + last_bias.sum()};
  };
  const Forced result = forced(function, inputs_, kOpenAttention);
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, function, inputs_);
}

TEST_F(OpenAttention, NotWithWeightsThatLieTheOtherWay) {
  const at::Tensor turned = weight_.t().contiguous().t();
  const Function function = [&](const Tensors& in) -> Tensors {
    return {std::get<0>(at::_native_multi_head_attention(in[0], in[0], in[0], kWidth, kHeads, turned, bias_,
                                                         last_weight_, last_bias_, {}, false))};
  };
  EXPECT_TRUE(forced(function, inputs_, kOpenAttention).sites.empty());
}

TEST_F(OpenAttention, NotInHalfPrecision) {
  const auto half = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16); };
  const at::Tensor weight = half(weight_), bias = half(bias_), last_weight = half(last_weight_),
                   last_bias = half(last_bias_);
  const Function function = [&](const Tensors& in) -> Tensors {
    return {std::get<0>(at::_native_multi_head_attention(in[0], in[0], in[0], kWidth, kHeads, weight, bias,
                                                         last_weight, last_bias, {}, false))};
  };
  EXPECT_TRUE(forced(function, {half(inputs_[0])}, kOpenAttention).sites.empty());
}

// To themselves and to others, between sums and norms, with writes in between.
TEST_F(OpenAttention, RandomProgramsGiveWhatEagerGives) {
  using Values = RandomValues;
  const at::Tensor mask = torch::zeros({2, 5}).to(at::kBool);
  const auto to_itself = [&](const at::Tensor& x, std::int64_t heads) {
    return std::get<0>(at::_native_multi_head_attention(x, x, x, kWidth, heads, weight_, bias_, last_weight_,
                                                        last_bias_, {}, false));
  };
  const std::vector<Values::Operation> operations = {
      [&](Values& v) { return to_itself(v.last(), std::int64_t{1} << v.number_below(4)); },
      [&](Values& v) { return to_itself(at::layer_norm(v.pick(), {kWidth}), kHeads) + v.last(); },
      [&](Values& v) { return attention(v.pick(), v.pick()); },
      [&](Values& v) {
        const at::Tensor& x = v.last();
        return std::get<0>(at::_native_multi_head_attention(x, x, x, kWidth, kHeads, weight_, bias_,
                                                            last_weight_, last_bias_, mask, false, true,
                                                            /*mask_type=*/1));
      },
      [](Values& v) { return (v.pick() + v.last()).tanh(); },
      [&](Values& v) {
        const at::Tensor x = v.pick_own(), y = to_itself(x, kHeads);
        x.select(1, 0).mul_(0.5);
        return y;
      },
      [](Values& v) {
        return v.pick().transpose(0, 1).contiguous().view({2, 5, kWidth});
      },
  };
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      Values values({in[0], in[0] * 2}, /*made=*/1, seed);
      values.grow(6, operations);
      return {values.last() * 1, values.pick() + 1};
    };
    SCOPED_TRACE(seed);
    const Forced result = forced(function, inputs_, kOpenAttention);
    fired += result.sites.size();
    expect_same(result.program, function, inputs_);
  }
  EXPECT_GT(fired, 60u);
}

TEST_F(OpenAttention, NotWhereSentencesLieWordByWord) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor turned = in[0].transpose(0, 1);
    return {attention(turned, turned)};
  };
  EXPECT_TRUE(forced(function, inputs_, kOpenAttention).sites.empty());
}

}  // namespace
}  // namespace nimble
