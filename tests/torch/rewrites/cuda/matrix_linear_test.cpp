#include <map>

#include "../random_linears.h"
#include "forced.h"

namespace nimble {
namespace {

class MatrixLinear : public RewriteTest {
 protected:
  const Tensors inputs_ = {torch::randn({4, 6})};
  const at::Tensor weight_ = torch::randn({5, 6}), bias_ = torch::randn({5});
};

TEST_F(MatrixLinear, IsAProductOfPixelsByFilters) {
  const Function function = [&](const Tensors& in) -> Tensors { return {at::linear(in[0], weight_, bias_)}; };
  const Forced result = forced(function, inputs_, kMatrixLinear);
  EXPECT_EQ(drawn(result.program), R"(
%0 = nimble::matrix_convolution(input0, extern0, extern1)
return %0
)");
  expect_same(result.program, function, inputs_);
}

TEST_F(MatrixLinear, TakesTheActivationIn) {
  for (const char* approximation : {"none", "tanh"}) {
    const Function function = [&](const Tensors& in) -> Tensors {
      return {at::gelu(at::linear(in[0], weight_, bias_), approximation)};
    };
    const Forced result = forced(function, inputs_, kMatrixLinear);
    EXPECT_EQ(drawn(result.program), R"(
%0 = nimble::matrix_convolution(input0, extern0, extern1)
return %0
)");
    expect_same(result.program, function, inputs_);
  }
}

// at::linear of three dimensions multiplies rows, and the activation looks at sentences of them.
TEST_F(MatrixLinear, TakesTheActivationOfSentencesIn) {
  const Tensors sentences = {torch::randn({2, 3, 6})};
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], weight_, bias_).relu() * 2};
  };
  const Forced result = forced(function, sentences, kMatrixLinear);
  EXPECT_EQ(drawn(result.program), R"(
%0 = nimble::matrix_convolution(input0, extern0, extern1)
%1 = mul(%0)
return %1
)");
  expect_same(result.program, function, sentences);
}

TEST_F(MatrixLinear, WorksWithoutABias) {
  const Function function = [&](const Tensors& in) -> Tensors { return {at::mm(in[0], weight_.t())}; };
  const Forced result = forced(function, inputs_, kMatrixLinear);
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, function, inputs_);
}

TEST_F(MatrixLinear, WeightsThatLieTheOtherWayAreTurnedOnce) {
  const at::Tensor turned = torch::randn({6, 5});
  const Function function = [&](const Tensors& in) -> Tensors { return {at::addmm(bias_, in[0], turned)}; };
  const Forced result = forced(function, inputs_, kMatrixLinear);
  EXPECT_EQ(drawn(result.program), R"(
%0 = nimble::matrix_convolution(input0, derived0, extern0)
return %0
)");
  expect_same(result.program, function, inputs_);
}

TEST_F(MatrixLinear, ReadsRowsThatAreColumnsOfSomethingWider) {
  const Tensors wide = {torch::randn({4, 18})};
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear((in[0] * 2).slice(1, 6, 12), weight_, bias_)};
  };
  const Forced result = forced(function, wide, kMatrixLinear);
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, function, wide);
}

TEST_F(MatrixLinear, AProductThatOthersReadKeepsItsActivationApart) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], weight_, bias_);
    return {y.relu(), y};
  };
  const Forced result = forced(function, inputs_, kMatrixLinear);
  EXPECT_EQ(drawn(result.program), R"(
%0 = nimble::matrix_convolution(input0, extern0, extern1)
%1 = relu(%0)
return %1 %0
)");
  expect_same(result.program, function, inputs_);
}

TEST_F(MatrixLinear, NotWithFactorsNorWhereTheWeightIsNoWeight) {
  const Function halved = [&](const Tensors& in) -> Tensors {
    return {at::addmm(bias_, in[0], weight_.t(), 1, 0.5)};
  };
  const Function of_inputs = [&](const Tensors& in) -> Tensors { return {at::mm(in[0], in[0].t())}; };
  const Function in_double = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0].to(at::kDouble), weight_.to(at::kDouble))};
  };
  for (const Function& function : {halved, of_inputs, in_double}) {
    EXPECT_TRUE(forced(function, inputs_, kMatrixLinear).sites.empty());
  }
}

TEST_F(MatrixLinear, NotIfAWeightIsWritten) {
  const at::Tensor weight = weight_.clone();
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], weight, bias_);
    weight.mul_(0.5);
    return {y};
  };
  EXPECT_TRUE(forced(function, inputs_, kMatrixLinear).sites.empty());
}

TEST_F(MatrixLinear, NotIfItsInputOrItsResultIsWritten) {
  const Function input = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2, y = at::linear(x, weight_, bias_);
    x.select(0, 0).zero_();
    return {y.relu(), x + 1};
  };
  const Function result = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], weight_, bias_);
    y.select(0, 0).zero_();
    return {y.relu()};
  };
  const Function given = [&](const Tensors& in) -> Tensors {
    const at::Tensor both = torch::zeros({8, 5});
    at::Tensor half = both.slice(0, 0, 4);
    at::mm_out(half, in[0], weight_.t());
    return {both + 1};
  };
  for (const Function& function : {input, result, given}) {
    const Forced forced_result = forced(function, inputs_, kMatrixLinear);
    EXPECT_TRUE(forced_result.sites.empty());
    expect_same(forced_result.program, function, inputs_);
  }
}

TEST_F(MatrixLinear, NotWithRowsThatAreOneRowAgainAndAgain) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0].slice(0, 0, 1).expand({4, 6}), weight_, bias_)};
  };
  EXPECT_TRUE(forced(function, inputs_, kMatrixLinear).sites.empty());
}

TEST_F(MatrixLinear, AnActivationStaysApartWhereItLooksAtAPartOrWritesElsewhereOrIsWritten) {
  const Function part = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], weight_, bias_).slice(0, 0, 2).relu()};
  };
  const Function elsewhere = [&](const Tensors& in) -> Tensors {
    const at::Tensor both = torch::zeros({8, 5});
    at::Tensor half = both.slice(0, 0, 4);
    at::silu_out(half, at::linear(in[0], weight_, bias_));
    return {both + 1};
  };
  const Function written = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], weight_, bias_).relu();
    y.select(0, 0).zero_();
    return {y + 1};
  };
  for (const Function& function : {part, elsewhere, written}) {
    const Forced result = forced(function, inputs_, kMatrixLinear);
    const auto names = operators(result.program);
    EXPECT_EQ(std::ranges::count(names, "nimble::matrix_convolution"), 1) << drawn(result.program);
    EXPECT_EQ(std::ranges::count(names, "aten::relu") + std::ranges::count(names, "aten::silu"), 1)
        << drawn(result.program);
    expect_same(result.program, function, inputs_);
  }
}

TEST_F(MatrixLinear, NotInFloat32WhereTensorCoresAreForbidden) {
  const Function function = [&](const Tensors& in) -> Tensors { return {at::linear(in[0], weight_, bias_)}; };
  at::globalContext().setAllowTF32CuDNN(false);
  EXPECT_TRUE(forced(function, inputs_, kMatrixLinear).sites.empty());
  at::globalContext().setAllowTF32CuDNN(true);
}

// Other libraries multiply halves by tensor cores too: without a measurement theirs are taken.
TEST_F(MatrixLinear, NotInHalfPrecisionUnmeasured) {
  const at::Tensor weight = weight_.to(at::kBFloat16);
  const Function function = [&](const Tensors& in) -> Tensors { return {at::linear(in[0], weight)}; };
  EXPECT_TRUE(forced(function, {inputs_[0].to(at::kBFloat16)}, kMatrixLinear).sites.empty());
}

// How long tasks take, by operator; the sum of several.
RewriteContext measured(std::map<std::string, Nanoseconds> times) {
  RewriteContext context;
  context.measure = [times = std::move(times)](std::span<const Buffer>, std::span<const Task> tasks) {
    Nanoseconds all = 0;
    for (const Task& task : tasks) all += times.at(task.op.operator_name().name);
    return all;
  };
  return context;
}

TEST_F(MatrixLinear, LeavesWhatMeasuresFaster) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::linear(in[0], weight_, bias_).relu()};
  };
  const auto fired = [&](const Tensors& inputs, Nanoseconds ours, Nanoseconds fused) {
    const RewriteContext context = measured({{"nimble::matrix_convolution", ours},
                                             {"aten::addmm", 600},
                                             {"aten::relu", 400},
                                             {"aten::_addmm_activation", fused}});
    return forced(function, inputs, kMatrixLinear, {}, context).sites.size();
  };
  EXPECT_EQ(fired(inputs_, 800, 900), 1u);
  EXPECT_EQ(fired(inputs_, 1200, 1100), 0u);
  EXPECT_EQ(fired(inputs_, 800, 500), 0u) << "left to linear_activation";
  EXPECT_EQ(fired({torch::randn({2, 3, 6})}, 800, 500), 1u) << "which does nothing with sentences";
}

TEST_F(MatrixLinear, RandomProgramsGiveWhatEagerGives) {
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const RandomLinears function(seed, "tanh");
    SCOPED_TRACE(seed);
    const Forced result = forced(function, function.inputs(), kMatrixLinear);
    fired += result.sites.size();
    expect_same(result.program, function, function.inputs());
  }
  EXPECT_GT(fired, 100u);
}

}  // namespace
}  // namespace nimble
