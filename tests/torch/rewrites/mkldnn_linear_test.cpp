#include "measured.h"
#include "random_linears.h"

namespace nimble {
namespace {

class MkldnnLinear : public RewriteTest {
 protected:
  Program rewritten_linear(const Function& function, const Tensors& inputs) {
    return rewritten_where_faster(function, inputs, {"mkldnn_linear"}, measured(1, 100));
  }
  const Tensors rows_ = {torch::randn({6, 5})};
  const at::Tensor weight_ = torch::randn({7, 5}), bias_ = torch::randn({7});
};

TEST_F(MkldnnLinear, TakesItsActivationIn) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::gelu(at::linear(in[0], weight_, bias_))};
  };
  EXPECT_EQ(drawn(record(rows_, function)), R"(
%0 = addmm(extern0, input0, extern1)
%1 = gelu(%0)
return %1
)");
  const Program program = rewritten_linear(function, rows_);
  EXPECT_EQ(drawn(program), R"(
%0 = nimble::mkldnn_linear(input0, extern0, extern1)
return %0
)");
  EXPECT_TRUE(at::allclose(run(program, rows_)[0], function(rows_)[0], 1e-4, 1e-5));
  weight_.mul_(2);
  derive_all(program);
  EXPECT_TRUE(at::allclose(run(program, rows_)[0], function(rows_)[0], 1e-4, 1e-5));
}

TEST_F(MkldnnLinear, TakesLayersWithoutBias) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::relu(at::linear(in[0], weight_))};
  };
  const Program program = rewritten_linear(function, rows_);
  EXPECT_EQ(drawn(program), R"(
%0 = nimble::mkldnn_linear(input0, extern0)
return %0
)");
  EXPECT_TRUE(at::allclose(run(program, rows_)[0], function(rows_)[0], 1e-4, 1e-5));
}

TEST_F(MkldnnLinear, NotAnActivationThatWritesToATensorItWasGiven) {
  const Function function = [&](const Tensors& in) -> Tensors {
    at::Tensor out = at::empty({6, 7});
    at::sigmoid_out(out, at::linear(in[0], weight_, bias_));
    return {out};
  };
  const Program program = rewritten_linear(function, rows_);
  EXPECT_EQ(operators(program), (std::vector<std::string>{"nimble::mkldnn_linear", "aten::sigmoid"}));
  EXPECT_TRUE(at::allclose(run(program, rows_)[0], function(rows_)[0], 1e-4, 1e-5));
}

TEST_F(MkldnnLinear, StaysAsItIsUnlessItMeasuresFaster) {
  EXPECT_EQ(fired([&](const Tensors& in) -> Tensors { return {at::linear(in[0], weight_, bias_)}; }, rows_,
                  "mkldnn_linear"),
            0u);
}

TEST_F(MkldnnLinear, NotWithFactors) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::addmm(bias_, in[0], weight_.t(), 2, 1)};
  };
  EXPECT_EQ(operators(rewritten_linear(function, rows_)), std::vector<std::string>{"aten::addmm"});
}

TEST_F(MkldnnLinear, NotWithAWeightFromTheCaller) {
  const Function function = [&](const Tensors& in) -> Tensors { return {at::addmm(bias_, in[0], in[1])}; };
  EXPECT_EQ(operators(rewritten_linear(function, {rows_[0], torch::randn({5, 7})})),
            std::vector<std::string>{"aten::addmm"});
}

TEST_F(MkldnnLinear, RandomProgramsGiveWhatEagerGives) {
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const RandomLinears function(seed, "tanh");
    const Program program = rewritten_linear(function, function.inputs());
    for (const std::string& name : operators(program)) fired += name == "nimble::mkldnn_linear" ? 1 : 0;
    const Tensors fresh = function.inputs(), given = run(program, fresh), expected = function(fresh);
    SCOPED_TRACE(seed);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(given[i], expected[i], 1e-4, 1e-4)) << (given[i] - expected[i]).abs().max();
    }
  }
  EXPECT_GT(fired, 100u);
}

}  // namespace
}  // namespace nimble
