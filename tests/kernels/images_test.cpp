// Kernels for images, run on the host, against the calls of ATen that they stand for.
#include <ATen/ATen.h>
#include <ATen/native/Pool.h>
#include <gtest/gtest.h>

#include <array>

#include "nimble/core/error.h"
#include "nimble/kernels/depthwise_source.h"
#include "nimble/kernels/into.h"
#include "nimble/kernels/pooling_source.h"
#include "nimble/kernels/references.h"
#include "tests/kernels/host_device.h"

namespace nimble::kernels {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast, kContiguous = at::MemoryFormat::Contiguous;

at::Tensor images(at::IntArrayRef shape, at::MemoryFormat format, at::ScalarType type = at::kFloat) {
  return at::randn(shape).to(type).contiguous(format);
}

// Within one rounding of what float64 gives.
void expect_near(const at::Tensor& result, const at::Tensor& exact, const std::string& what) {
  const double step = result.scalar_type() == at::kFloat  ? 1e-5
                      : result.scalar_type() == at::kHalf ? 1e-3
                                                          : 8e-3;
  EXPECT_EQ(result.sizes(), exact.sizes()) << what;
  EXPECT_TRUE(at::allclose(result.to(at::kDouble), exact, step, step)) << what;
}

// A slice of the channels of something larger that holds a number no result has, and whether it still does
// everywhere else.
struct Slice {
  static constexpr double kUntouched = 12345;
  at::Tensor whole, place;

  Slice(at::IntArrayRef sizes, at::ScalarType type, std::int64_t before, std::int64_t behind)
      : whole(at::full({sizes[0], before + sizes[1] + behind, sizes[2], sizes[3]}, kUntouched, type)
                  .contiguous(kChannelsLast)),
        place(whole.slice(1, before, before + sizes[1])) {}

  bool nothing_else_changed() const {
    const at::Tensor rest = at::cat(
        {whole.slice(1, 0, place.storage_offset()), whole.slice(1, place.storage_offset() + place.size(1))},
        1);
    return at::equal(rest, at::full_like(rest, kUntouched));
  }
};

TEST(IntoTest, AResultThatDoesNotFitIsRefused) {
  at::Tensor wide = at::empty({2, 8}), whole_numbers = at::empty({2, 4}, at::kInt);
  EXPECT_THROW(copy_into(wide, at::ones({2, 4})), InvalidInput);  // copy_ alone would broadcast
  EXPECT_THROW(copy_into(whole_numbers, at::ones({2, 4})), InvalidInput);
  at::Tensor half = wide.slice(1, 4);
  EXPECT_TRUE(at::equal(copy_into(half, at::ones({2, 4})), at::ones({2, 4})));
}

struct Filter {
  std::int64_t size, stride, padding, dilation;
};

void check_depthwise(const at::Tensor& x, const Filter& f, bool packed, const char* before,
                     const char* after) {
  at::Tensor weight = at::randn({x.size(1), 1, f.size, f.size}).to(x.scalar_type());
  // Neighbouring channels beside each other.
  if (packed) weight = weight.permute({2, 3, 1, 0}).contiguous().permute({3, 2, 0, 1});
  const at::Tensor bias = at::randn({x.size(1)}).to(x.scalar_type());
  const auto d = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  const at::Tensor exact =
      depthwise_convolution(d(x), d(weight), d(bias), {f.stride, f.stride}, {f.padding, f.padding},
                            {f.dilation, f.dilation}, before, after);
  for (std::int64_t n = 0; n < kDepthwiseCandidates; ++n) {
    const at::Tensor y = at::empty(exact.sizes(), x.options().memory_format(x.suggest_memory_format()));
    const KernelSource kernel =
        depthwise_source({.x = ImageLayout(x),
                          .y = ImageLayout(y),
                          .window = Window({f.size, f.size}, {f.stride}, {f.padding}, {f.dilation}),
                          .weight_channel = weight.stride(0),
                          .weight_row = weight.stride(2),
                          .weight_column = weight.stride(3),
                          .weight_first = address_in_elements(weight),
                          .dtype = x.scalar_type(),
                          .has_bias = true,
                          .before = before,
                          .after = after,
                          .candidate = n});
    testing::run_on_host(kernel, {x, weight, bias, y});
    expect_near(y, exact,
                "k" + std::to_string(f.size) + " s" + std::to_string(f.stride) + " d" +
                    std::to_string(f.dilation) + ", way " + std::to_string(n));
  }
}

TEST(DepthwiseTest, EverySizeAndStrideInBothLayouts) {
  for (const auto format : {kChannelsLast, kContiguous}) {
    for (const std::int64_t size : {3, 5, 7}) {
      for (const std::int64_t stride : {1, 2}) {
        check_depthwise(images({2, 12, 11, 9}, format), {size, stride, size / 2, 1}, true, "none", "relu");
      }
    }
  }
}

TEST(DepthwiseTest, EveryType) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    for (const auto format : {kChannelsLast, kContiguous}) {
      check_depthwise(images({1, 16, 8, 8}, format, type), {3, 1, 1, 1}, true, "relu", "none");
    }
  }
}

TEST(DepthwiseTest, OddChannelsPlainFiltersDilationAndNoPadding) {
  check_depthwise(images({1, 11, 10, 7}, kChannelsLast), {3, 2, 1, 1}, true, "none", "none");
  check_depthwise(images({1, 12, 10, 7}, kChannelsLast), {3, 1, 1, 1}, false, "none", "silu");
  check_depthwise(images({1, 8, 14, 13}, kChannelsLast), {3, 1, 2, 2}, true, "relu6", "hardswish");
  check_depthwise(images({1, 8, 9, 9}, kChannelsLast), {5, 1, 0, 1}, true, "none", "sigmoid");
  check_depthwise(images({1, 8, 3, 3}, kContiguous), {7, 1, 3, 1}, true, "none", "gelu");
}

TEST(DepthwiseTest, PaddingIsZeroBehindTheActivation) {
  // sigmoid(0) is one half: padding that went through it would show.
  check_depthwise(images({1, 4, 5, 5}, kChannelsLast), {3, 1, 1, 1}, true, "sigmoid", "none");
}

TEST(DepthwiseTest, AThreadTakesSeveralPixelsWhereThereAreMany) {
  check_depthwise(images({1, 64, 99, 47}, kChannelsLast), {3, 1, 1, 1}, true, "none", "relu6");
  check_depthwise(images({1, 64, 199, 95}, kChannelsLast), {5, 2, 2, 1}, true, "relu", "none");
  check_depthwise(images({4, 64, 99, 95}, kChannelsLast), {3, 1, 1, 1}, true, "none", "relu6");
  check_depthwise(images({1, 32, 120, 119}, kContiguous), {3, 1, 1, 1}, false, "none", "relu");
}

TEST(DepthwiseTest, AWayThatDoesNotExistIsRefused) {
  const at::Tensor x = images({1, 4, 5, 5}, kChannelsLast), weight = at::randn({4, 1, 3, 3});
  EXPECT_THROW(depthwise_source({.x = ImageLayout(x),
                                 .y = ImageLayout(x),
                                 .window = Window({3, 3}, {1}, {1}, {1}),
                                 .weight_channel = weight.stride(0),
                                 .weight_row = weight.stride(2),
                                 .weight_column = weight.stride(3),
                                 .weight_first = address_in_elements(weight),
                                 .dtype = at::kFloat,
                                 .has_bias = false,
                                 .before = "none",
                                 .after = "none",
                                 .candidate = kDepthwiseCandidates}),
               Error);
}

TEST(DepthwiseTest, ASliceOfChannelsIsReadInPlace) {
  const at::Tensor whole = images({2, 32, 6, 6}, kChannelsLast);
  for (const std::int64_t first : {0, 4, 6, 7}) {
    check_depthwise(whole.slice(1, first, first + 8), {3, 1, 1, 1}, true, "none", "none");
  }
}

TEST(DepthwiseTest, ASliceOfChannelsIsWrittenInPlace) {
  for (const auto type : {at::kFloat, at::kHalf}) {
    for (const auto& [channels, before, behind] :
         std::vector<std::array<std::int64_t, 3>>{{8, 8, 16}, {8, 4, 4}, {8, 3, 1}, {11, 0, 5}}) {
      const at::Tensor x = images({2, channels, 5, 5}, kChannelsLast, type),
                       weight = at::randn({3, 3, 1, channels}).to(type).permute({3, 2, 0, 1});
      const Slice slice({2, channels, 5, 5}, type, before, behind);
      testing::run_on_host(depthwise_source({.x = ImageLayout(x),
                                             .y = ImageLayout(slice.place),
                                             .window = Window({3, 3}, {1}, {1}, {1}),
                                             .weight_channel = weight.stride(0),
                                             .weight_row = weight.stride(2),
                                             .weight_column = weight.stride(3),
                                             .weight_first = address_in_elements(weight),
                                             .dtype = type,
                                             .has_bias = false,
                                             .before = "none",
                                             .after = "relu"}),
                           {x, weight, x, slice.place});
      const auto d = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
      expect_near(slice.place,
                  depthwise_convolution(d(x), d(weight), {}, {1, 1}, {1, 1}, {1, 1}, "none", "relu"),
                  std::to_string(before));
      EXPECT_TRUE(slice.nothing_else_changed()) << before;
    }
  }
}

TEST(ImageLayoutTest, WithoutMemoryASliceIsAsAlignedAsItsPlace) {
  const at::Tensor whole =
      at::empty({1, 24, 4, 4}, at::TensorOptions(at::kMeta).memory_format(kChannelsLast));
  EXPECT_EQ(ImageLayout(whole.slice(1, 8, 16)).channel_vector(4), 4);
  EXPECT_EQ(ImageLayout(whole.slice(1, 6, 14)).channel_vector(4), 2);
  EXPECT_EQ(ImageLayout(whole.slice(1, 7, 15)).channel_vector(4), 1);
}

struct Pool {
  std::int64_t size, stride, padding;
  bool ceil_mode;
};

at::Tensor empty_pooled(const at::Tensor& x, const at::Tensor& like) {
  return at::empty(like.sizes(), x.options().memory_format(x.suggest_memory_format()));
}

std::string name(const Pool& p) {
  return "k" + std::to_string(p.size) + " s" + std::to_string(p.stride) + " p" + std::to_string(p.padding) +
         (p.ceil_mode ? " ceil" : "");
}

const std::vector<Pool> kPools = {
    {2, 2, 0, false}, {3, 2, 1, false}, {3, 2, 0, true},  {3, 1, 1, false},
    {3, 2, 1, true},  {5, 3, 2, true},  {11, 5, 5, false}};  // more pixels than a thread has under way
                                                             // together

TEST(PoolingTest, MaximaAreAtensBits) {
  for (const auto format : {kChannelsLast, kContiguous}) {
    for (const Pool& p : kPools) {
      for (const auto type : p.ceil_mode ? std::vector{at::kFloat, at::kHalf} : std::vector{at::kFloat}) {
        const at::Tensor x = images({2, 10, 13, 12}, format, type);
        x[0][1][2][5] = NAN;
        const at::Tensor expected = max_pool2d(x, {p.size, p.size}, {p.stride, p.stride},
                                               {p.padding, p.padding}, {1, 1}, p.ceil_mode, "relu");
        const at::Tensor y = empty_pooled(x, expected);
        testing::run_on_host(pooling_source({.kind = Pooling::Kind::kMaximum,
                                             .x = ImageLayout(x),
                                             .y = ImageLayout(y),
                                             .window = Window({p.size}, {p.stride}, {p.padding}, {1}),
                                             .dtype = type,
                                             .after = "relu"}),
                             {x, y});
        EXPECT_TRUE(at::allclose(y, expected, 0, 0, /*equal_nan=*/true)) << name(p);
      }
    }
  }
}

// By our kernel and by ATen's call, of float32.
struct Maxima {
  Maxima(const at::Tensor& x, std::int64_t size, std::int64_t stride, std::int64_t padding,
         std::int64_t dilation)
      : expected(max_pool2d(x, {size, size}, {stride, stride}, {padding, padding}, {dilation, dilation},
                            false, "none")),
        given(empty_pooled(x, expected)) {
    testing::run_on_host(pooling_source({.kind = Pooling::Kind::kMaximum,
                                         .x = ImageLayout(x),
                                         .y = ImageLayout(given),
                                         .window = Window({size}, {stride}, {padding}, {dilation}),
                                         .dtype = at::kFloat,
                                         .after = "none"}),
                         {x, given});
  }
  at::Tensor expected, given;
};

TEST(PoolingTest, TheMaximumOfNegativeZerosIsOne) {
  const at::Tensor x = images({1, 10, 13, 12}, kChannelsLast, at::kFloat).fill_(-0.0f);
  EXPECT_TRUE(Maxima(x, 11, 5, 5, 1).given.signbit().all().item<bool>());
}

TEST(PoolingTest, MaximaOverDilatedWindows) {
  const Maxima maxima(images({1, 8, 15, 15}, kChannelsLast), 3, 2, 1, 2);
  EXPECT_TRUE(at::equal(maxima.given, maxima.expected));
}

TEST(PoolingTest, AveragesCountWhatAtenCounts) {
  for (const auto format : {kChannelsLast, kContiguous}) {
    for (const Pool& p : kPools) {
      for (const bool count_include_pad : {true, false}) {
        std::vector<std::optional<std::int64_t>> divisors = {std::nullopt};
        if (p.padding == 2) divisors.emplace_back(5);
        for (const auto& divisor : divisors) {
          const at::Tensor x = images({2, 8, 13, 12}, format);
          const at::Tensor exact =
              avg_pool2d(x.to(at::kDouble), {p.size, p.size}, {p.stride, p.stride}, {p.padding, p.padding},
                         p.ceil_mode, count_include_pad, divisor, "none");
          const at::Tensor y = empty_pooled(x, exact);
          testing::run_on_host(pooling_source({.kind = Pooling::Kind::kAverage,
                                               .x = ImageLayout(x),
                                               .y = ImageLayout(y),
                                               .window = Window({p.size}, {p.stride}, {p.padding}, {}),
                                               .dtype = at::kFloat,
                                               .count_include_pad = count_include_pad,
                                               .divisor_override = divisor,
                                               .after = "none"}),
                               {x, y});
          expect_near(y, exact, name(p) + (count_include_pad ? " with padding" : ""));
        }
      }
    }
  }
}

TEST(PoolingTest, ASliceOfChannelsIsWrittenInPlace) {
  for (const auto& [channels, before, behind] :
       std::vector<std::array<std::int64_t, 3>>{{8, 8, 16}, {8, 3, 1}, {11, 0, 5}}) {
    const at::Tensor x = images({2, channels, 7, 7}, kChannelsLast);
    const at::Tensor expected = max_pool2d(x, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, "none");
    const Slice slice(expected.sizes(), at::kFloat, before, behind);
    testing::run_on_host(pooling_source({.kind = Pooling::Kind::kMaximum,
                                         .x = ImageLayout(x),
                                         .y = ImageLayout(slice.place),
                                         .window = Window({3}, {2}, {1}, {1}),
                                         .dtype = at::kFloat,
                                         .after = "none"}),
                         {x, slice.place});
    EXPECT_TRUE(at::equal(slice.place, expected)) << before;
    EXPECT_TRUE(slice.nothing_else_changed()) << before;
  }
}

TEST(PoolingTest, AdaptiveAverages) {
  for (const auto format : {kChannelsLast, kContiguous}) {
    for (const std::vector<std::int64_t>& size :
         std::vector<std::vector<std::int64_t>>{{1, 1}, {3, 2}, {7, 7}, {13, 12}}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor x = images({2, 40, 13, 12}, format, type);
        const at::Tensor exact = adaptive_avg_pool2d(x.to(at::kDouble), size, "none");
        const at::Tensor y = empty_pooled(x, exact);
        testing::run_on_host(pooling_source({.kind = Pooling::Kind::kAdaptiveAverage,
                                             .x = ImageLayout(x),
                                             .y = ImageLayout(y),
                                             .dtype = type,
                                             .after = "none"}),
                             {x, y});
        expect_near(y, exact, std::to_string(size[0]));
      }
    }
  }
}

}  // namespace
}  // namespace nimble::kernels
