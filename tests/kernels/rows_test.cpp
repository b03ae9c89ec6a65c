// Generated kernels with a layer norm or a softmax inside, run on the host, against the calls of ATen that
// they stand for.
#include <random>

#include "nimble/core/error.h"
#include "tests/kernels/row_kernels.h"

namespace nimble::kernels {
namespace {

using namespace testing;

std::string sum_and_norm(std::int64_t columns) {
  return "%0 = add.Tensor(x0, x1, 1); %1 = native_layer_norm(%0, [" + std::to_string(columns) +
         "], x2, x3, 1e-05); return %0, %1";
}
const std::string kMaskedSoftmax =
    "%0 = mul.Scalar(x0, 0.125); %1 = add.Tensor(%0, x1, 1); %2 = _softmax(%1, -1, false); return %2";

TEST(RowsTest, ASumAndItsLayerNormOfEveryLengthAndType) {
  for (const std::int64_t columns : {1, 3, 31, 33, 768, 1000, 1024, 1025, 4097, 8192}) {
    for (const auto type : kTypes) {
      const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type); };
      expect_as_near_as_aten(sum_and_norm(columns), {random({3, columns}), random({3, columns}),
                                                     random({columns}), random({columns})});
    }
  }
}

TEST(RowsTest, TheSumIsEagersBits) {
  for (const auto type : kTypes) {
    const at::Tensor a = at::randn({5, 96}).to(type), b = at::randn({5, 96}).to(type),
                     weight = at::randn({96}).to(type);
    EXPECT_TRUE(at::equal(run_kernel(sum_and_norm(96), {a, b, weight, weight}).results[0], a + b));
  }
}

TEST(RowsTest, LayerNormsWithoutWeightOrBias) {
  const at::Tensor x = at::randn({7, 40}), w = at::randn({40});
  expect_as_near_as_aten("%0 = native_layer_norm(x0, [40], none, none, 1e-05); return %0", {x});
  expect_as_near_as_aten("%0 = native_layer_norm(x0, [40], x1, none, 0.25); return %0", {x, w});
  expect_as_near_as_aten("%0 = native_layer_norm(x0, [40], none, x1, 1e-12); return %0", {x, w});
}

TEST(RowsTest, RowsOfSeveralDimensions) {
  expect_as_near_as_aten("%0 = relu(x0); %1 = native_layer_norm(%0, [4, 6], x1, x2, 1e-05); return %1",
                         {at::randn({2, 3, 4, 6}), at::randn({4, 6}), at::randn({4, 6})});
  const std::string biased =
      "%0 = add.Tensor(x0, x1, 1); %1 = native_layer_norm(%0, [4, 6], none, none, 1e-05); return %1";
  EXPECT_TRUE(has_kernel(biased, {at::randn({2, 3, 4, 6}), at::randn({4, 6})}));
  EXPECT_FALSE(has_kernel(biased, {at::randn({2, 3, 4, 6}), at::randn({6})})) << "broadcast inside a row";
}

// Squares of such rows differ from the square of their mean by less than a rounding.
TEST(RowsTest, NothingIsLostOfRowsFarFromZero) {
  for (const std::int64_t columns : {33, 1000, 4097}) {
    const at::Tensor x = at::randn({4, columns}) + 1e5;
    const std::string norm =
        "%0 = native_layer_norm(x0, [" + std::to_string(columns) + "], none, none, 1e-05); return %0";
    const at::Tensor exact = evaluate(parse_expression(norm), {x.to(at::kDouble)})[0];
    EXPECT_LE(error_of(run_kernel(norm, {x}).results[0], exact), 1e-6 * exact.abs().max().item<double>());
  }
}

TEST(RowsTest, RowsOfOneNumberHaveNoDeviation) {
  const at::Tensor x = at::full({3, 700}, 1234.567);
  const auto given =
      run_kernel("%0 = native_layer_norm(x0, [700], none, none, 1e-12); return %0", {x}).results[0];
  EXPECT_TRUE(at::equal(given, at::zeros({3, 700})));
}

TEST(RowsTest, ASoftmaxOfEveryLength) {
  for (const std::int64_t columns : {1, 3, 31, 33, 128, 197, 768, 1000, 1024, 1025, 4097}) {
    expect_as_near_as_aten(kMaskedSoftmax, {at::randn({2, 3, columns}) * 20, at::randn({2, 1, columns})});
  }
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    expect_as_near_as_aten(kMaskedSoftmax,
                           {at::randn({2, 3, 197}).to(type), at::randn({1, 1, 197}).to(type)});
  }
}

TEST(RowsTest, ASoftmaxMayWidenItsResult) {
  // On a CPU ATen has no such softmax, so the halves are widened before it.
  const at::Tensor x = at::randn({3, 64}).to(at::kHalf);
  const auto widened = run_kernel("%0 = neg(x0); %1 = _softmax(%0, -1, true); return %1", {x}).results.at(0);
  EXPECT_EQ(widened.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(widened, at::softmax(-x.to(at::kFloat), -1), 1e-5, 1e-7));
}

TEST(RowsTest, MasksInEveryFormOfBroadcasting) {
  const at::Tensor scores = at::randn({2, 3, 5, 40});
  for (const std::vector<std::int64_t>& mask : {std::vector<std::int64_t>{40},
                                                {5, 40},
                                                {2, 1, 1, 40},
                                                {2, 1, 5, 40},
                                                {2, 3, 5, 1},
                                                {5, 1},
                                                {1},
                                                {}}) {
    expect_as_near_as_aten(kMaskedSoftmax, {scores, at::randn(mask)});
  }
}

TEST(RowsTest, MaskedElementsAreNothingAndAMaskedRowIsNoNumber) {
  const at::Tensor x = at::randn({3, 70});
  at::Tensor mask = at::zeros({3, 70});
  mask[0].slice(0, 30).fill_(-kInfinity);
  mask[1].fill_(-kInfinity);
  expect_same_kinds(kMaskedSoftmax, {x, mask});
  const at::Tensor given = run_kernel(kMaskedSoftmax, {x, mask}).results[0];
  EXPECT_TRUE(given[1].isnan().all().item<bool>());
  EXPECT_TRUE((given[0].slice(0, 30) == 0).all().item<bool>());
}

TEST(RowsTest, ASafeSoftmaxGivesNothingForAMaskedRow) {
  const std::string safe =
      "%0 = masked_fill.Scalar(x0, x1, -inf); %1 = _safe_softmax(%0, -1, none); return %1";
  const at::Tensor x = at::randn({3, 70});
  at::Tensor mask = at::rand({3, 70}) < 0.5;
  mask[1].fill_(true);
  expect_same_kinds(safe, {x, mask});
  EXPECT_TRUE((run_kernel(safe, {x, mask}).results[0][1] == 0).all().item<bool>());
}

TEST(RowsTest, WhatIsNoNumberSpoilsItsRowAlone) {
  for (const double odd : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity}) {
    for (const std::int64_t columns : {40, 2000}) {
      at::Tensor x = at::randn({4, columns});
      x[2][7] = odd;
      const at::Tensor zero = at::zeros({4, columns});
      expect_same_kinds(kMaskedSoftmax, {x, zero});
      const std::string norm = "%0 = add.Tensor(x0, x1, 1); %1 = native_layer_norm(%0, [" +
                               std::to_string(columns) + "], none, none, 1e-05); return %1";
      expect_same_kinds(norm, {x, zero});
    }
  }
}

TEST(RowsTest, WhatFollowsIsComputedOnTheSpot) {
  for (const auto type : kTypes) {
    const at::Tensor a = at::randn({3, 48}).to(type), b = at::randn({3, 48}).to(type),
                     w = at::randn({48}).to(type);
    // The values before the norm are needed behind it too, as an operand and as a result.
    expect_as_near_as_aten(
        "%0 = mul.Tensor(x0, x1); %1 = add.Tensor(%0, x1, 1); %2 = native_layer_norm(%1, [48], x2, x2, "
        "1e-05); "
        "%3 = sigmoid(%2); %4 = mul.Tensor(%3, %0); %5 = neg(x0); %6 = add.Tensor(%4, %5, 1); return %1, %6",
        {a, b, w});
  }
}

TEST(RowsTest, CastsBeforeAndBehind) {
  const at::Tensor x = at::randn({5, 72}).to(at::kHalf), y = at::randn({5, 72}), w = at::randn({72});
  const std::string to = "_to_copy(", rest = ", none, none, none, false, none); ";
  const std::string text =
      "%0 = " + to + "x0, 6" + rest +
      "%1 = add.Tensor(%0, x1, 1); %2 = native_layer_norm(%1, [72], x2, x2, 1e-05); %3 = " + to + "%2, 15" +
      rest + "return %2, %3, %1";
  const Tensors expected = evaluate(parse_expression(text), {x, y, w});
  const Tensors given = run_kernel(text, {x, y, w}).results;
  EXPECT_TRUE(at::allclose(given[0], expected[0], 1e-5, 1e-5));
  EXPECT_EQ(given[1].scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(given[1], given[0].to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(given[2], expected[2]));
}

TEST(RowsTest, ManyShortRowsShareABlock) {
  const at::Tensor x = at::randn({601, 64}), mask = at::randn({64});
  const auto ran = run_kernel(kMaskedSoftmax, {x, mask});
  EXPECT_EQ(ran.kernel.threads, 128u);
  EXPECT_EQ(ran.kernel.blocks, 151u);
  EXPECT_TRUE(at::allclose(ran.results[0], at::softmax(x * 0.125 + mask, -1), 1e-5, 1e-7));
}

TEST(RowsTest, BothDivisionsOfTheWorkGiveTheSame) {
  for (const std::int64_t rows : {5, 600}) {
    for (const std::int64_t columns : {100, 768, 1025}) {
      const Tensors inputs = {at::randn({rows, columns}), at::randn({rows, columns}), at::randn({columns}),
                              at::randn({columns})};
      const auto one = run_kernel(sum_and_norm(columns), inputs, 0),
                 other = run_kernel(sum_and_norm(columns), inputs, 1);
      EXPECT_NE(one.kernel.threads, other.kernel.threads);
      EXPECT_TRUE(at::equal(one.results[0], other.results[0]));
      EXPECT_TRUE(at::allclose(one.results[1], other.results[1], 1e-5, 1e-6));
    }
  }
}

TEST(RowsTest, LoadsAreAsWideAsTheMemoryAllows) {
  const at::Tensor flat = at::randn({8 * 1024 + 8}), weight = at::randn({1024});
  const auto widths = [&](const at::Tensor& x, const at::Tensor& w) {
    const auto ran = run_kernel(sum_and_norm(x.size(1)), {x, x, w, w});
    const at::Tensor expected = at::layer_norm(x + x, {x.size(1)}, w, w);
    EXPECT_TRUE(at::allclose(ran.results[1], expected, 1e-5, 1e-5));
    const auto found = ran.kernel.text.find("width = ");
    return ran.kernel.text.substr(found + 8, 1);
  };
  EXPECT_EQ(widths(flat.slice(0, 0, 8192).view({8, 1024}), weight), "4");
  EXPECT_EQ(widths(flat.slice(0, 2, 8194).view({8, 1024}), weight), "2") << "begins between two vectors";
  EXPECT_EQ(widths(flat.slice(0, 1, 8193).view({8, 1024}), weight), "1");
  EXPECT_EQ(widths(flat.slice(0, 0, 8 * 1025).view({8, 1025}).slice(1, 0, 1024), weight), "1")
      << "the second row begins between two vectors";
  EXPECT_EQ(widths(flat.slice(0, 0, 8 * 1022).view({8, 1022}), weight.slice(0, 0, 1022)), "2");
}

TEST(RowsTest, OneAfterTheOther) {
  for (const std::int64_t columns : {8, 1025}) {
    const at::Tensor x = at::randn({3, columns}), w = at::randn({columns});
    expect_as_near_as_aten("%0 = native_layer_norm(x0, [" + std::to_string(columns) +
                               "], x1, none, 1e-05); %1 = relu(%0); %2 = _softmax(%1, 1, false); "
                               "%3 = add.Tensor(%2, %0, 1); return %3, %1",
                           {x, w});
  }
}

TEST(RowsTest, RandomExpressionsAreAsNearAsAtens) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    const auto type = *(kTypes.begin() + random() % 3);
    const std::int64_t rows = 1 + random() % 40, columns = 1 + random() % 300;
    Tensors inputs = {at::randn({rows, columns}), at::randn({rows, columns}), at::randn({columns}),
                      at::randn({rows, 1})};
    for (at::Tensor& tensor : inputs) tensor = tensor.to(type);
    std::vector<std::string> values = {"x0", "x1"};  // of the whole shape
    std::string text;
    const auto pick = [&]() -> const std::string& { return values[random() % values.size()]; };
    const auto add_step = [&](const std::string& call) {
      const std::string name = "%" + std::to_string(values.size() - 2);
      text += name + " = " + call + "; ";
      values.push_back(name);
    };
    const auto add_pointwise = [&] {
      const std::string calls[] = {"add.Tensor(" + pick() + ", " + pick() + ", 1)",
                                   "mul.Tensor(" + pick() + ", x3)",
                                   "sub.Tensor(" + pick() + ", x2, 0.5)",
                                   "tanh(" + pick() + ")",
                                   "clamp(" + pick() + ", -1.5, 2.0)",
                                   "mul.Scalar(" + pick() + ", 0.3)"};
      add_step(calls[random() % 6]);
    };
    for (auto i = random() % 4; i > 0; --i) add_pointwise();
    add_step(random() % 2
                 ? "_softmax(" + pick() + ", 1, false)"
                 : "native_layer_norm(" + pick() + ", [" + std::to_string(columns) + "], x2, none, 1e-05)");
    for (auto i = random() % 4; i > 0; --i) add_pointwise();
    add_step("add.Tensor(" + values.back() + ", x3, 1)");
    add_step("add.Tensor(" + values.back() + ", x2, 1)");
    add_step("add.Tensor(" + values.back() + ", x1, 1)");
    text += "return " + values.back() + ", " + values[2 + random() % (values.size() - 2)];
    expect_as_near_as_aten(text, inputs);
  }
}

TEST(RowsTest, WhatNoKernelHandlesIsTold) {
  const std::string softmax = "%0 = neg(x0); %1 = _softmax(%0, -1, false); return %1";
  EXPECT_TRUE(has_kernel(softmax, {at::randn({3, 8})}));
  EXPECT_FALSE(has_kernel(softmax, {at::randn({3, 8}, at::kDouble)}));
  EXPECT_FALSE(has_kernel(softmax, {at::randn({3, 8193})})) << "more than registers hold";
  EXPECT_FALSE(has_kernel(softmax, {at::randn({8, 3}).t()})) << "columns in memory, not rows";
  EXPECT_FALSE(has_kernel(softmax, {at::randn({0, 3})}));
  EXPECT_FALSE(has_kernel("%0 = neg(x0); %1 = _softmax(%0, 0, false); return %1", {at::randn({3, 8})}));
  EXPECT_FALSE(has_kernel("%0 = neg(x0); return %0", {at::randn({3, 8})})) << "nothing over rows";
  EXPECT_FALSE(
      has_kernel("%0 = cumsum(x0, 1, none); %1 = _softmax(%0, -1, false); return %1", {at::randn({3, 8})}));
  EXPECT_FALSE(has_kernel("%0 = _softmax(x0, 1, false); %1 = add.Tensor(%0, x1, 1); return %1",
                          {at::randn({3, 8}), at::randn({2, 3, 8})}))
      << "broadcast behind it";
  EXPECT_THROW(run_kernel(softmax, {at::randn({8, 3}).t()}), InvalidInput);
}

}  // namespace
}  // namespace nimble::kernels
