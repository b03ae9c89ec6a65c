// Generated kernels with reductions of rows inside, run on the host, against the calls of ATen that they
// stand for.
#include <ATen/core/Reduction.h>

#include <random>

#include "tests/kernels/row_kernels.h"

namespace nimble::kernels {
namespace {

using namespace testing;

// All in one kernel, with the dimension that they are over left out or kept.
const std::string kEveryReduction =
    "%0 = mul.Tensor(x0, x1); %1 = sum.dim_IntList(%0, [-1], false, none); %2 = mean.dim(%0, [1], true, "
    "none); "
    "%3 = amax(%0, [-1], true); %4 = amin(%0, [1], false); "
    "%5 = linalg_vector_norm(%0, 2, [-1], true, none); %6 = linalg_vector_norm(%0, 1.0, [-1], false, none); "
    "%7 = linalg_vector_norm(%0, inf, [1], false, none); return %1, %2, %3, %4, %5, %6, %7";

const std::string kRmsNorm =
    "%0 = pow.Tensor_Scalar(x0, 2); %1 = mean.dim(%0, [-1], true, none); %2 = add.Scalar(%1, 1e-06, 1); "
    "%3 = rsqrt(%2); %4 = mul.Tensor(x0, %3); %5 = mul.Tensor(%4, x1); return %5";

const std::string kNormalized =
    "%0 = linalg_vector_norm(x0, 2, [-1], true, none); %1 = clamp_min(%0, 1e-12); %2 = div.Tensor(x0, %1); ";

// Two norms, and a sum of what is made with them.
const std::string kCosineSimilarity =
    "%0 = linalg_vector_norm(x0, 2, [1], true, none); %1 = linalg_vector_norm(x1, 2, [1], true, none); "
    "%2 = div.Tensor(x0, %0); %3 = div.Tensor(x1, %1); %4 = mul.Tensor(%2, %3); "
    "%5 = sum.dim_IntList(%4, [1], false, none); return %5";

at::Tensor random(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes).to(type);
}

TEST(RowReductionsTest, EveryReductionOfEveryLengthAndType) {
  for (const std::int64_t columns : {1, 3, 33, 768, 1025, 8192}) {
    for (const auto type : kTypes) {
      expect_as_near_as_aten(kEveryReduction, {random({3, columns}, type), random({3, columns}, type)});
    }
  }
}

TEST(RowReductionsTest, EachAlone) {
  for (const std::string call : {"sum.dim_IntList(%0, [-1], true, none)", "mean.dim(%0, [-1], false, none)",
                                 "amax(%0, [-1], false)", "linalg_vector_norm(%0, 2, [-1], false, none)"}) {
    expect_as_near_as_aten("%0 = sigmoid(x0); %1 = " + call + "; return %1", {random({2, 5, 70})});
  }
}

TEST(RowReductionsTest, ManyShortRowsShareABlock) {
  const at::Tensor x = random({601, 64});
  const auto ran = run_kernel("%0 = abs(x0); %1 = sum.dim_IntList(%0, [1], false, none); return %1", {x});
  EXPECT_EQ(ran.kernel.threads, 128u);
  EXPECT_TRUE(at::allclose(ran.results[0], x.abs().sum(1), 1e-5));
}

TEST(RowReductionsTest, AnRmsNorm) {
  for (const std::int64_t columns : {1, 31, 768, 4097}) {
    for (const auto type : kTypes) {
      expect_as_near_as_aten(kRmsNorm, {random({2, 3, columns}, type), random({columns}, type)});
    }
  }
}

TEST(RowReductionsTest, AnRmsNormThatIsOneCall) {
  const at::Tensor x = random({5, 72}), w = random({72});
  expect_as_near_as_aten(
      "%0 = add.Tensor(x0, x0, 1); %1 = _fused_rms_norm(%0, [72], x1, 0.25); %2 = relu(%1); return %2",
      {x, w});
  expect_as_near_as_aten("%0 = _fused_rms_norm(x0, [72], none, none); return %0", {x * 1e-4});
}

TEST(RowReductionsTest, ANormalizationAndTheNormItself) {
  for (const auto type : kTypes) {
    const Tensors inputs = {random({3, 4, 130}, type)};
    expect_as_near_as_aten(kNormalized + "return %2", inputs);
    expect_as_near_as_aten(kNormalized + "return %0, %2", inputs);
  }
}

TEST(RowReductionsTest, ACosineSimilarityHasThree) {
  for (const std::int64_t columns : {1, 50, 1030}) {
    for (const auto type : kTypes) {
      expect_as_near_as_aten(kCosineSimilarity, {random({4, columns}, type), random({4, columns}, type)});
    }
  }
}

TEST(RowReductionsTest, ASquaredErrorForEachRowAndOfEverything) {
  for (const auto type : kTypes) {
    const Tensors inputs = {random({6, 90}, type), random({6, 90}, type)};
    expect_as_near_as_aten("%0 = mse_loss(x0, x1, 0); %1 = mean.dim(%0, [-1], false, none); return %1",
                           inputs);
    expect_as_near_as_aten("%0 = mse_loss(x0, x1, 0); %1 = mean(%0, none); return %1", inputs);
    expect_as_near_as_aten(
        "%0 = sub.Tensor(x0, x1, 1); %1 = abs(%0); %2 = sum(%1, none); %3 = div.Tensor(%1, %2); "
        "return %2, %3",
        inputs);
  }
}

TEST(RowReductionsTest, TheSquaresOfDifferencesAreEagersBits) {
  const std::string text = "%0 = mse_loss(x0, x1, 0); %1 = amax(%0, [-1], false); return %0, %1";
  const at::Tensor a = random({3, 40}), b = random({3, 40});
  EXPECT_TRUE(at::equal(run_kernel(text, {a, b}).results[0], at::mse_loss(a, b, at::Reduction::None)));
}

TEST(RowReductionsTest, ALogSoftmaxOfEveryLength) {
  const std::string text =
      "%0 = mul.Scalar(x0, 0.5); %1 = _log_softmax(%0, -1, false); %2 = neg(%1); return %2";
  for (const std::int64_t columns : {1, 33, 1000, 4097}) {
    for (const auto type : kTypes) expect_as_near_as_aten(text, {random({3, columns}, type) * 20});
  }
  at::Tensor x = random({3, 70});
  x[1].fill_(-kInfinity);
  x[2][5] = kInfinity;
  expect_same_kinds(text, {x});
}

// A softmax by hand has two reductions, a layer norm by hand too. Rows go through three passes.
TEST(RowReductionsTest, LaterPassesFindWhatEarlierOnesComputed) {
  for (const std::int64_t columns : {40, 1500}) {
    const at::Tensor x = random({3, columns});
    expect_as_near_as_aten(
        "%0 = amax(x0, [-1], true); %1 = sub.Tensor(x0, %0, 1); %2 = exp(%1); "
        "%3 = sum.dim_IntList(%2, [-1], true, none); %4 = div.Tensor(%2, %3); return %4",
        {x});
    expect_as_near_as_aten(
        "%0 = mean.dim(x0, [-1], true, none); %1 = sub.Tensor(x0, %0, 1); %2 = mul.Tensor(%1, %1); "
        "%3 = mean.dim(%2, [-1], true, none); %4 = add.Scalar(%3, 1e-05, 1); %5 = sqrt(%4); "
        "%6 = div.Tensor(%1, %5); %7 = add.Tensor(%6, x0, 1); return %7, %1, %3",
        {x});
  }
}

TEST(RowReductionsTest, NumbersWithoutTheirDimensionGetItBack) {
  expect_as_near_as_aten(
      "%0 = mean.dim(x0, [-1], false, none); %1 = reshape(%0, [2, 5, 1]); %2 = sub.Tensor(x0, %1, 1); "
      "return %2, %0",
      {random({2, 5, 40})});
}

TEST(RowReductionsTest, NumbersOfRowsMayBeGiven) {
  expect_as_near_as_aten(
      "%0 = add.Scalar(x1, 1, 1); %1 = mul.Tensor(x0, %0); %2 = sum.dim_IntList(%1, [-1], true, none); "
      "%3 = mul.Tensor(%2, x1); %4 = add.Tensor(%3, x2, 1); return %4, %1",
      {random({2, 5, 40}), random({2, 5, 1}), at::scalar_tensor(0.5)});
  expect_as_near_as_aten(
      "%0 = sum.dim_IntList(x0, [-1], false, none); %1 = mul.Tensor(%0, x1); %2 = add.Tensor(%1, x2, 1); "
      "return %2",
      {random({5, 5}), random({5}), at::scalar_tensor(0.5)});
}

TEST(RowReductionsTest, RowsOfSeveralDimensions) {
  expect_as_near_as_aten("%0 = relu(x0); %1 = mean.dim(%0, [2, 3], false, none); return %1",
                         {random({2, 3, 4, 6})});
  expect_as_near_as_aten(
      "%0 = relu(x0); %1 = sum.dim_IntList(%0, [-1, -2], true, none); %2 = div.Tensor(%0, %1); return %2",
      {random({2, 3, 4, 6})});
}

TEST(RowReductionsTest, TheTypeOfTheResultIsThatOfTheSum) {
  const at::Tensor x = random({3, 2000}, at::kHalf);
  const auto widened =
      run_kernel("%0 = abs(x0); %1 = sum.dim_IntList(%0, [-1], false, 6); return %1", {x}).results[0];
  EXPECT_EQ(widened.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(widened, x.abs().to(at::kFloat).sum(-1), 1e-5));
}

TEST(RowReductionsTest, WhatIsNoNumberSpoilsItsRowAlone) {
  for (const double odd : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity}) {
    for (const std::string call :
         {"amax(%0, [-1], false)", "amin(%0, [-1], false)", "linalg_vector_norm(%0, inf, [-1], false, none)",
          "mean.dim(%0, [-1], false, none)"}) {
      at::Tensor x = random({4, 1100});
      x[2][7] = odd;
      expect_same_kinds("%0 = mul.Scalar(x0, 0.5); %1 = " + call + "; return %1", {x});
    }
  }
}

TEST(RowReductionsTest, BothDivisionsOfTheWorkGiveTheSame) {
  for (const std::int64_t rows : {5, 600}) {
    const Tensors inputs = {random({rows, 768}), random({768})};
    const auto one = run_kernel(kRmsNorm, inputs, 0), other = run_kernel(kRmsNorm, inputs, 1);
    EXPECT_NE(one.kernel.threads, other.kernel.threads);
    EXPECT_TRUE(at::allclose(one.results[0], other.results[0], 1e-5, 1e-6));
  }
}

TEST(RowReductionsTest, WhatNoKernelHandlesIsTold) {
  const at::Tensor x = random({6, 6});
  const auto summed = [](const std::string& call) { return "%0 = neg(x0); %1 = " + call + "; return %1"; };
  EXPECT_TRUE(has_kernel(summed("sum.dim_IntList(%0, [1], false, none)"), {x}));
  EXPECT_FALSE(has_kernel(summed("sum.dim_IntList(%0, [0], false, none)"), {x})) << "over columns";
  EXPECT_FALSE(has_kernel(summed("sum.dim_IntList(%0, [1], false, none)"), {x.t()})) << "columns in memory";
  EXPECT_FALSE(has_kernel(summed("sum.dim_IntList(%0, [1], false, 7)"), {x})) << "float64";
  EXPECT_FALSE(has_kernel(summed("sum.dim_IntList(%0, [1], false, none)"), {x.to(at::kInt)}));
  EXPECT_FALSE(has_kernel(summed("linalg_vector_norm(%0, 3, [1], false, none)"), {x}));
  EXPECT_FALSE(has_kernel(summed("sum(%0, none)"), {random({2, 4097})})) << "more than registers hold";
  EXPECT_FALSE(
      has_kernel("%0 = sum.dim_IntList(x0, [1], false, none); %1 = add.Tensor(x0, %0, 1); return %1", {x}))
      << "the sum of a row is added to a column";
  EXPECT_FALSE(
      has_kernel("%0 = sum.dim_IntList(x0, [1], false, none); %1 = mul.Tensor(%0, x1); "
                 "%2 = mul.Tensor(x0, x1); return %1, %2",
                 {x, random({6})}))
      << "one input along rows and along columns";
  EXPECT_FALSE(
      has_kernel("%0 = sum.dim_IntList(x0, [1], true, none); %1 = sum(x0, none); "
                 "%2 = add.Tensor(%0, %1, 1); return %2",
                 {x}))
      << "rows and the whole";
}

TEST(RowReductionsTest, RandomExpressionsAreAsNearAsAtens) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 draw(static_cast<std::mt19937::result_type>(seed));
    const auto type = *(kTypes.begin() + draw() % 3);
    const std::int64_t rows = 1 + draw() % 40, columns = 1 + draw() % 300;
    const Tensors inputs = {random({rows, columns}, type), random({rows, columns}, type),
                            random({columns}, type), random({rows, 1}, type)};
    std::vector<std::string> whole = {"x0", "x1"}, numbers = {"x3"}, steps;
    std::string text;
    const auto pick = [&](const auto& from) { return from[draw() % from.size()]; };
    const auto add = [&](auto& to, const std::string& call) {
      to.push_back("%" + std::to_string(steps.size()));
      steps.push_back(call);
      text += to.back() + " = " + call + "; ";
    };
    for (int i = 0; i < 9; ++i) {
      const std::string x = pick(whole), y = pick(whole), n = pick(numbers);
      const std::vector<std::string> of_whole = {
          "add.Tensor(" + x + ", " + y + ", 1)", "mul.Tensor(" + x + ", " + n + ")",
          "sub.Tensor(" + x + ", x2, 0.5)",      "tanh(" + x + ")",
          "_softmax(" + x + ", 1, false)",       "_log_softmax(" + x + ", 1, false)"};
      const std::vector<std::string> of_numbers = {"mean.dim(" + x + ", [1], true, none)",
                                                   "amax(" + x + ", [1], true)", "amin(" + x + ", [1], true)",
                                                   "sigmoid(" + n + ")", "add.Tensor(" + n + ", x3, 1)"};
      if (draw() % 2) {
        add(whole, pick(of_whole));
      } else {
        add(numbers, pick(of_numbers));
      }
    }
    add(numbers, "mean.dim(" + whole.back() + ", [1], true, none)");
    add(whole, "add.Tensor(x1, " + numbers.back() + ", 1)");
    add(whole, "mul.Tensor(" + whole.back() + ", x2)");
    add(whole, "add.Tensor(" + whole.back() + ", x3, 1)");
    add(whole, "add.Tensor(" + whole.back() + ", x0, 1)");
    expect_as_near_as_aten(text + "return " + whole.back() + ", " + numbers.back(), inputs);
  }
}

}  // namespace
}  // namespace nimble::kernels
