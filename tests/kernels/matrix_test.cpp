// The kernel for products by tensor cores, run on the host, against the calls of ATen that it stands for.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nimble/core/error.h"
#include "nimble/kernels/matrix_source.h"
#include "nimble/kernels/references.h"
#include "tests/kernels/host_device.h"

namespace nimble::kernels {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

struct Filter {
  std::int64_t size, stride = 1, padding = 0, dilation = 1;
};

// Of the product itself.
struct Larger {
  std::vector<std::int64_t> size = {1, 1}, stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
};

struct Case {
  at::Tensor x;
  std::int64_t channels;
  std::optional<Filter> filter = {};
  Larger larger = {};
  const char *before = "none", *between = "none", *after = "none";
  bool bias = true, residual = false, tf32 = false;
  std::int64_t into = 0;  // the channel at which the result goes into something larger; 0: not
};

at::Tensor images(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::randn(shape).to(type).contiguous(kChannelsLast);
}

// The steps between neighbouring numbers near 1 that the products are rounded to.
double step_of(at::ScalarType type) {
  return type == at::kBFloat16 ? 1.0 / 128 : 1.0 / 1024;  // half precision and TF32 have ten bits
}

class Product {
 public:
  explicit Product(const Case& c) : case_(c) {
    const auto type = c.x.scalar_type();
    const auto inner = c.x.size(1);
    const auto taps = c.larger.size[0] * c.larger.size[1];
    weight = (at::randn({c.channels, inner, c.larger.size[0], c.larger.size[1]}) /
              std::sqrt(static_cast<double>(inner * taps)))
                 .to(type)
                 .contiguous(kChannelsLast);
    if (c.bias) bias = at::randn({c.channels}).to(type);
    if (c.filter) {
      const auto size = c.filter->size;
      filters =
          (at::randn({size, size, 1, inner}) / static_cast<double>(size)).to(type).permute({3, 2, 0, 1});
      filter_bias = at::randn({inner}).to(type);
      stride = {c.filter->stride, c.filter->stride};
      padding = {c.filter->padding, c.filter->padding};
      dilation = {c.filter->dilation, c.filter->dilation};
    } else {
      stride = c.larger.stride, padding = c.larger.padding, dilation = c.larger.dilation;
    }
    const Window window((c.filter ? *filters : weight).sizes().slice(2), stride, padding, dilation);
    const ImageLayout x(c.x);
    const auto whole_channels = c.into ? c.into + c.channels + 1 : c.channels;
    whole = at::full({x.images, whole_channels, window.rows_of(x.height), window.columns_of(x.width)}, NAN,
                     at::dtype(type))
                .contiguous(kChannelsLast);
    y = whole.slice(1, c.into, c.into + c.channels);
    if (c.residual) residual = at::randn(y.sizes()).to(type).contiguous(kChannelsLast);
    const auto first = [](const std::optional<at::Tensor>& tensor) {
      return tensor ? std::optional(address_in_elements(*tensor)) : std::nullopt;
    };
    convolution.emplace(MatrixConvolution{.x = x,
                                          .channels = c.channels,
                                          .out_height = y.size(2),
                                          .out_width = y.size(3),
                                          .weight_row = inner * taps,
                                          .y_step = whole_channels,
                                          .residual_step = c.channels,
                                          .dtype = type,
                                          .after = c.after,
                                          .has_filters = c.filter.has_value(),
                                          .window = window,
                                          .before = c.before,
                                          .between = c.between,
                                          .tf32 = c.tf32,
                                          .weight_first = address_in_elements(weight),
                                          .y_first = address_in_elements(y),
                                          .bias_first = first(bias),
                                          .residual_first = first(residual),
                                          .filters_first = first(filters),
                                          .filter_bias_first = first(filter_bias)});
  }

  std::size_t tiles() const { return matrix_tiles({&*convolution, 1}).size(); }

  void check(std::int64_t candidate) {
    whole.fill_(NAN);
    const auto or_none = [](const std::optional<at::Tensor>& t) { return t ? *t : at::Tensor(); };
    testing::run_on_host(
        matrix_source(*convolution, candidate),
        {case_.x, weight, or_none(bias), or_none(residual), or_none(filters), or_none(filter_bias), y});
    const auto d = [](const std::optional<at::Tensor>& t) {
      return t ? std::optional(t->to(at::kDouble)) : std::nullopt;
    };
    const at::Tensor exact = matrix_convolution(*d(case_.x), *d(weight), d(bias), d(residual), case_.after, 0,
                                                d(filters), d(filter_bias), stride, padding, dilation,
                                                case_.before, case_.between, case_.tf32);
    const double step = step_of(y.scalar_type());
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), exact, step, 2 * step))
        << "candidate " << candidate << " of " << case_.x.sizes() << " to " << case_.channels << ": "
        << (y.to(at::kDouble) - exact).abs().max().item<double>();
    EXPECT_EQ(whole.isnan().sum().item<std::int64_t>(), whole.numel() - y.numel()) << "what lies around it";
  }

  at::Tensor weight, whole, y;
  std::optional<at::Tensor> bias, residual, filters, filter_bias;
  std::optional<MatrixConvolution> convolution;

 private:
  Case case_;
  std::vector<std::int64_t> stride, padding, dilation;
};

void check(const Case& c, std::int64_t candidate = 0) { Product(c).check(candidate); }

TEST(MatrixTest, EveryWayToDivideTheWork) {
  const std::vector<Case> cases = {{.x = images({1, 144, 5, 7}, at::kHalf), .channels = 40},
                                   {.x = images({1, 70, 6, 9}), .channels = 24, .filter = Filter{3, 1, 1}}};
  for (const Case& c : cases) {
    Product product(c);
    for (std::size_t n = 0; n < product.tiles(); ++n) product.check(static_cast<std::int64_t>(n));
    EXPECT_THROW(product.check(static_cast<std::int64_t>(product.tiles())), Error);
    EXPECT_THROW(product.check(-1), Error);
  }
}

TEST(MatrixTest, ChannelsOfAnyNumber) {
  for (const auto type : {at::kFloat, at::kHalf}) {
    for (const auto& [inner, channels] : {std::pair(1, 11), {11, 44}, {22, 1}, {44, 24}}) {
      check({.x = images({1, inner, 4, 5}, type), .channels = channels});
    }
  }
}

TEST(MatrixTest, BiasResidualAndActivation) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const auto x = images({2, 24, 3, 3}, type);
    check({.x = x, .channels = 18, .after = "relu6", .bias = true, .residual = true});
    check({.x = x, .channels = 18, .after = "silu", .bias = false, .residual = type == at::kHalf});
  }
}

TEST(MatrixTest, ADepthwiseConvolutionOnTheWay) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const std::int64_t size : {3, 5, 7}) {
      check({.x = images({2, 12, 9, 10}, type),
             .channels = 20,
             .filter = Filter{size, type == at::kHalf ? 2 : 1, size / 2},
             .before = "relu",
             .between = "relu6",
             .after = "hardswish",
             .residual = true});
    }
  }
}

TEST(MatrixTest, NoPaddingDilationAndOddChannels) {
  check({.x = images({1, 11, 9, 8}, at::kHalf), .channels = 11, .filter = Filter{3}});
  check({.x = images({1, 22, 9, 11}), .channels = 7, .filter = Filter{3, 1, 2, 2}});
  check({.x = images({1, 8, 11, 8}), .channels = 8, .filter = Filter{3, 2, 2, 3}});
  check({.x = images({1, 8, 1, 1}), .channels = 8, .filter = Filter{7, 1, 3}});
}

TEST(MatrixTest, LargerFilters) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    check({.x = images({2, 24, 7, 6}, type),
           .channels = 20,
           .larger = {.size = {3, 3}, .padding = {1, 1}},
           .after = "relu",
           .residual = true});
    check({.x = images({1, 11, 9, 10}, type),
           .channels = 7,
           .larger = {.size = {5, 3}, .stride = {2, 1}, .padding = {2, 0}}});
  }
  check({.x = images({1, 3, 11, 9}),  // what a network begins with
         .channels = 8,
         .larger = {.size = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}});
  check({.x = images({1, 32, 9, 9}), .channels = 8, .larger = {.size = {1, 7}, .padding = {0, 3}}});
  check({.x = images({1, 32, 9, 9}), .channels = 8, .larger = {.size = {7, 1}, .padding = {3, 0}}});
  check({.x = images({1, 16, 9, 9}),
         .channels = 8,
         .larger = {.size = {3, 3}, .padding = {2, 2}, .dilation = {2, 2}}});
  check({.x = images({1, 16, 9, 8}), .channels = 8, .larger = {.stride = {2, 2}}});
  check({.x = images({1, 16, 3, 3}), .channels = 8, .larger = {.padding = {1, 1}}});
}

TEST(MatrixTest, EveryWayToDivideALargerFilter) {
  Product product(
      {.x = images({1, 40, 5, 7}), .channels = 40, .larger = {.size = {3, 3}, .padding = {1, 1}}});
  for (std::size_t n = 0; n < product.tiles(); ++n) product.check(static_cast<std::int64_t>(n));
}

TEST(MatrixTest, PaddingIsZeroBehindTheActivation) {
  // sigmoid(0) is one half: padding that went through it would show.
  check({.x = images({1, 8, 5, 5}), .channels = 8, .filter = Filter{3, 1, 1}, .before = "sigmoid"});
}

TEST(MatrixTest, ASliceOfChannelsIsReadInPlace) {
  const at::Tensor whole = images({2, 40, 4, 3}, at::kHalf);
  for (const std::int64_t first : {0, 4, 7}) {
    check({.x = whole.slice(1, first, first + 16), .channels = 16});
    check({.x = whole.slice(1, first, first + 16), .channels = 16, .filter = Filter{3, 1, 1}});
  }
}

TEST(MatrixTest, AResultGoesIntoASliceOfChannels) {
  for (const std::int64_t first : {4, 3}) {
    check({.x = images({2, 16, 4, 3}), .channels = 8, .residual = true, .into = first});
    check({.x = images({2, 16, 4, 3}), .channels = 8, .filter = Filter{3, 1, 1}, .into = first});
  }
}

// It is known only later that a result goes there, when the kernel for a result of its own is compiled
// already.
TEST(MatrixTest, AResultInASliceTakesNoOtherKernel) {
  const Product product({.x = images({1, 16, 4, 4}), .channels = 32, .bias = false});
  MatrixConvolution into_a_slice = *product.convolution;
  into_a_slice.y_step = into_a_slice.residual_step = 96;
  into_a_slice.y_first += 32;
  EXPECT_EQ(matrix_source(into_a_slice, 0).text, matrix_source(*product.convolution, 0).text);
}

TEST(MatrixTest, SinglePrecisionIsKept) {
  // TF32 has neither this number nor its square.
  constexpr double kNumber = 1.0 + 3.0 / 4096;
  const at::Tensor x = at::full({1, 64, 1, 1}, kNumber).contiguous(kChannelsLast);
  Product product({.x = x, .channels = 8, .bias = false});
  product.weight.fill_(kNumber);
  testing::run_on_host(matrix_source(*product.convolution, 0), {x, product.weight, at::Tensor(), at::Tensor(),
                                                                at::Tensor(), at::Tensor(), product.y});
  EXPECT_NEAR(product.y.max().item<double>(), 64 * kNumber * kNumber, 1e-4);
}

// To the nearest: cutting the other bits off would add up to a tenth of a thousandth here.
TEST(MatrixTest, SinglePrecisionIsRoundedToTheNearestTf32WhereThatIsAsked) {
  constexpr double kStep = 1.0 / 1024, kNumber = 1 + 0.75 * kStep;
  const at::Tensor x = at::full({1, 64, 1, 1}, kNumber).contiguous(kChannelsLast);
  Product product({.x = x, .channels = 8, .bias = false, .tf32 = true});
  product.weight.fill_(kNumber);
  testing::run_on_host(matrix_source(*product.convolution, 0), {x, product.weight, at::Tensor(), at::Tensor(),
                                                                at::Tensor(), at::Tensor(), product.y});
  EXPECT_NEAR(product.y.max().item<double>(), 64 * (1 + kStep) * (1 + kStep), 1e-4);
}

TEST(MatrixTest, LargerFiltersAreRoundedToo) {
  check({.x = images({1, 24, 7, 6}),
         .channels = 20,
         .larger = {.size = {3, 3}, .padding = {1, 1}},
         .after = "relu",
         .residual = true,
         .tf32 = true});
}

TEST(MatrixTest, InfinityStaysInfinite) {
  for (const bool tf32 : {false, true}) {
    at::Tensor x = images({1, 16, 2, 2});
    x[0][3][1][0] = INFINITY;
    Product product({.x = x, .channels = 8, .tf32 = tf32});
    product.weight.fill_(1);
    testing::run_on_host(
        matrix_source(*product.convolution, 0),
        {x, product.weight, *product.bias, at::Tensor(), at::Tensor(), at::Tensor(), product.y});
    EXPECT_TRUE(product.y.select(2, 1).select(2, 0).isposinf().all().item<bool>());
  }
}

TEST(MatrixTest, NotANumberStaysOnItsPixel) {
  at::Tensor x = images({1, 16, 2, 2});
  x[0][3][1][0] = NAN;
  Product product({.x = x, .channels = 8});
  testing::run_on_host(
      matrix_source(*product.convolution, 0),
      {x, product.weight, *product.bias, at::Tensor(), at::Tensor(), at::Tensor(), product.y});
  EXPECT_TRUE(product.y.select(2, 1).select(2, 0).isnan().all().item<bool>());
  EXPECT_EQ(product.y.isnan().sum().item<std::int64_t>(), 8);
}

TEST(MatrixTest, SmallProductsAreSpreadOverManyBlocks) {
  // The last block of MobileNetV2: 49 pixels, a long inner dimension.
  const Product product({.x = images({1, 960, 7, 7}), .channels = 160});
  const KernelSource kernel = matrix_source(*product.convolution, 0);
  EXPECT_GE(kernel.blocks, 20u);
  EXPECT_GE(kernel.threads, 256u);
}

}  // namespace
}  // namespace nimble::kernels
