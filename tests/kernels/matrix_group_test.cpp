// Several products of the same pixels in one launch, run on the host, against the calls of ATen that they
// stand for.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "nimble/core/error.h"
#include "nimble/kernels/matrix_source.h"
#include "nimble/kernels/references.h"
#include "tests/kernels/host_device.h"

namespace nimble::kernels {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

at::Tensor images(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::randn(shape).to(type).contiguous(kChannelsLast);
}

struct Options {
  const char* after = "relu";
  bool bias = true, tf32 = false;
  std::vector<std::int64_t> into =
      {};  // by product: the channel of something larger at which it goes; none: not
};

class Group {
 public:
  Group(const at::Tensor& x, const std::vector<std::int64_t>& filters, const Options& options = {})
      : x_(x), options_(options) {
    const auto type = x.scalar_type();
    const auto inner = x.size(1);
    for (std::size_t p = 0; p < filters.size(); ++p) {
      const std::int64_t channels = filters[p], before = options.into.empty() ? 0 : options.into[p],
                         all = options.into.empty() ? channels : before + channels + 3;
      weights.push_back(
          (at::randn({channels, inner, 1, 1}) / std::sqrt(static_cast<double>(inner))).to(type));
      if (options.bias) biases.push_back(at::randn({channels}).to(type));
      wholes.push_back(
          at::full({x.size(0), all, x.size(2), x.size(3)}, NAN, at::dtype(type)).contiguous(kChannelsLast));
      results.push_back(wholes.back().slice(1, before, before + channels));
      products.push_back(
          {.x = ImageLayout(x),
           .channels = channels,
           .out_height = x.size(2),
           .out_width = x.size(3),
           .weight_row = inner,
           .y_step = all,
           .residual_step = all,
           .dtype = type,
           .after = options.after,
           .has_filters = false,
           .window = Window({1, 1}, {1, 1}, {0, 0}, {1, 1}),
           .before = "none",
           .between = "none",
           .tf32 = options.tf32,
           .weight_first = address_in_elements(weights.back()),
           .y_first = address_in_elements(results.back()),
           .bias_first = options.bias ? std::optional(address_in_elements(biases.back())) : std::nullopt,
           .residual_first = {},
           .filters_first = {},
           .filter_bias_first = {}});
    }
  }

  void run(std::int64_t candidate = 0) {
    for (const at::Tensor& whole : wholes) whole.fill_(NAN);
    testing::run_with_table_on_host(matrix_group_source(products, candidate),
                                    matrix_group_table(products, candidate, x_, weights, biases, results));
  }

  void check(std::int64_t candidate = 0) {
    run(candidate);
    const auto in_double = [](const std::vector<at::Tensor>& tensors) {
      std::vector<at::Tensor> all;
      for (const at::Tensor& tensor : tensors) all.push_back(tensor.to(at::kDouble));
      return all;
    };
    const auto exact = matrix_convolutions(x_.to(at::kDouble), in_double(weights), in_double(biases),
                                           options_.after, candidate, options_.tf32);
    // The steps between neighbouring numbers near 1.
    const double step = x_.scalar_type() == at::kBFloat16 ? 1.0 / 128 : 1.0 / 1024;
    for (std::size_t p = 0; p < products.size(); ++p) {
      EXPECT_TRUE(at::allclose(results[p].to(at::kDouble), exact[p], step, 2 * step))
          << "product " << p << " of " << products.size() << " by way " << candidate << " of " << x_.sizes();
      EXPECT_EQ(wholes[p].isnan().sum().item<std::int64_t>(), wholes[p].numel() - results[p].numel())
          << "what lies around product " << p;
    }
  }

  std::vector<at::Tensor> weights, biases, wholes, results;
  std::vector<MatrixConvolution> products;

 private:
  at::Tensor x_;
  Options options_;
};

TEST(MatrixGroupTest, TwoToFourProductsOfAnyNumberOfFilters) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = images({1, 44, 5, 7}, type);
    Group(x, {24, 40}).check();
    Group(x, {64, 96, 16}).check();  // as in GoogLeNet
    Group(x, {8, 1, 33, 20}).check();
    Group(x, {7}).check();
  }
}

TEST(MatrixGroupTest, EveryWayToDivideTheWork) {
  for (const auto type : {at::kFloat, at::kHalf}) {
    Group group(images({1, 72, 5, 7}, type), {40, 16, 72});
    const auto tiles = static_cast<std::int64_t>(matrix_tiles(group.products).size());
    for (std::int64_t n = 0; n < tiles; ++n) group.check(n);
    EXPECT_THROW(group.check(tiles), Error);
    EXPECT_THROW(group.check(-1), Error);
  }
}

TEST(MatrixGroupTest, WithoutABiasOrAnActivationAndWithOddChannels) {
  Group(images({2, 11, 3, 3}), {12, 8}, {.after = "none", .bias = false}).check();
  Group(images({1, 22, 4, 5}, at::kHalf), {11, 44}, {.after = "silu"}).check();
  Group(images({1, 1, 2, 2}), {3, 5}, {.after = "hardswish"}).check();
}

TEST(MatrixGroupTest, EachResultGoesIntoASliceOfItsOwn) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    Group(images({2, 16, 4, 3}, type), {8, 16, 12}, {.into = {0, 8, 4}}).check();
    Group(images({2, 16, 4, 3}, type), {8, 5}, {.into = {3, 16}}).check();
  }
}

TEST(MatrixGroupTest, ASliceOfChannelsIsReadInPlace) {
  const at::Tensor whole = images({2, 40, 4, 3}, at::kHalf);
  for (const std::int64_t first : {0, 4, 7}) Group(whole.slice(1, first, first + 16), {16, 24}).check();
}

// Numbers of filters and places of results are in the table. It is known only later where results go, when
// the kernel is compiled already.
TEST(MatrixGroupTest, OtherFiltersAndPlacesTakeNoOtherKernel) {
  const at::Tensor x = images({1, 16, 4, 4});
  const Group some(x, {32, 64}, {.bias = false});
  std::vector<MatrixConvolution> in_slices = some.products;
  in_slices[1].y_step = in_slices[1].residual_step = 96;
  in_slices[1].y_first += 32;
  EXPECT_EQ(matrix_group_source(in_slices, 0).text, matrix_group_source(some.products, 0).text);
  const auto swapped = std::vector{some.products[1], some.products[0]};
  EXPECT_EQ(matrix_group_source(swapped, 0).text, matrix_group_source(some.products, 0).text);
}

TEST(MatrixGroupTest, ItsBlocksAreThoseOfAllProducts) {
  const Group group(images({1, 64, 17, 17}), {64, 96, 16});
  const MatrixTile tile = matrix_tiles(group.products).front();
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  std::int64_t blocks = 0;
  for (const std::int64_t channels : {64, 96, 16}) {
    blocks += ceil_div(17 * ceil_div(17, tile.columns), 8) * ceil_div(channels, tile.channels);
  }
  EXPECT_EQ(matrix_group_source(group.products, 0).blocks, blocks);
}

TEST(MatrixGroupTest, ItsNumbersAreThoseOfEachProductAlone) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = images({1, 96, 5, 4}, type);
    Group group(x, {48, 64});
    group.run();
    const auto tile = matrix_tiles(group.products).front();
    for (std::size_t p = 0; p < 2; ++p) {
      const MatrixConvolution& product = group.products[p];
      const auto tiles = matrix_tiles({&product, 1});
      const auto same = std::find(tiles.begin(), tiles.end(), tile) - tiles.begin();
      ASSERT_LT(same, static_cast<std::ptrdiff_t>(tiles.size()));
      const at::Tensor alone = at::empty_like(group.results[p]);
      testing::run_on_host(matrix_source(product, same), {x, group.weights[p], group.biases[p], at::Tensor(),
                                                          at::Tensor(), at::Tensor(), alone});
      EXPECT_TRUE(at::equal(group.results[p], alone));
    }
  }
}

TEST(MatrixGroupTest, SinglePrecisionIsKeptUnlessTF32IsAsked) {
  constexpr double kStep = 1.0 / 1024, kNumber = 1 + 0.75 * kStep;  // TF32 does not have it
  for (const bool tf32 : {false, true}) {
    const at::Tensor x = at::full({1, 64, 1, 1}, kNumber).contiguous(kChannelsLast);
    Group group(x, {8, 24}, {.after = "none", .bias = false, .tf32 = tf32});
    for (const at::Tensor& weight : group.weights) weight.fill_(kNumber);
    group.run();
    const double number = tf32 ? 1 + kStep : kNumber;
    for (const at::Tensor& result : group.results) {
      EXPECT_NEAR(result.max().item<double>(), 64 * number * number, 1e-4);
    }
  }
}

TEST(MatrixGroupTest, InfinityAndNotANumberStayOnTheirPixels) {
  at::Tensor x = images({1, 16, 2, 2});
  x[0][3][1][0] = INFINITY;
  x[0][5][0][1] = NAN;
  Group group(x, {8, 12});
  for (const at::Tensor& weight : group.weights) weight.fill_(1);
  group.run();
  for (const at::Tensor& result : group.results) {
    EXPECT_TRUE(result.select(2, 1).select(2, 0).isposinf().all().item<bool>());
    EXPECT_TRUE(result.select(2, 0).select(2, 1).isnan().all().item<bool>());
    EXPECT_EQ(result.isfinite().sum().item<std::int64_t>(), result.numel() / 2);
  }
}

TEST(MatrixGroupTest, RandomGroups) {
  std::mt19937 random(0);
  const auto from = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const auto type = std::vector{at::kFloat, at::kHalf, at::kBFloat16}[static_cast<std::size_t>(from(0, 2))];
    const at::Tensor x = images({from(1, 2), from(1, 80), from(1, 6), from(1, 9)}, type);
    std::vector<std::int64_t> filters, into;
    for (std::int64_t n = from(2, 4); n > 0; --n) {
      filters.push_back(from(1, 70));
      into.push_back(from(0, 9));
    }
    const bool sliced = from(0, 1) == 1;
    Group group(x, filters, {.bias = from(0, 1) == 1, .into = sliced ? into : std::vector<std::int64_t>()});
    group.check(from(0, 1));
  }
}

}  // namespace
}  // namespace nimble::kernels
