#include <limits>

#include "cuda/forced.h"
#include "cuda/random_values.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class FoldPadding : public RewriteTest {
 protected:
  void expect_operators(const Function& function, const std::vector<std::string>& names) const {
    const Forced result = forced(function, image_, kFoldPadding);
    EXPECT_EQ(operators(result.program), names);
    expect_same(result.program, function, image_);
  }
  std::size_t fired_on(const Function& function) const {
    const Forced result = forced(function, image_, kFoldPadding);
    expect_same(result.program, function, image_);
    return result.sites.size();
  }
  at::Tensor convolve(const at::Tensor& x) const { return at::conv2d(x, weight_); }

  const Tensors image_ = {torch::randn({2, 4, 7, 9})};
  const at::Tensor weight_ = torch::randn({4, 4, 5, 3}) / 8;
};

TEST_F(FoldPadding, BecomesPartOfTheConvolutionsBehindIt) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor padded = at::constant_pad_nd(in[0], {1, 1, 2, 2});
    return {at::conv2d(padded, weight_), at::conv2d(padded, weight_, {}, 2, at::IntArrayRef{1, 0})};
  };
  EXPECT_EQ(drawn(record(image_, function)), R"(
%0 = constant_pad_nd(input0)
%1 = convolution(%0, extern0)
%2 = convolution(%0, extern0)
return %1 %2
)");
  const Forced result = forced(function, image_, kFoldPadding);
  EXPECT_EQ(drawn(result.program), R"(
%0 = convolution(input0, extern0)
%1 = convolution(input0, extern0)
return %0 %1
)");
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(value_argument(result.program.tasks[0], 4).toIntVector(), (Numbers{2, 1}));
  EXPECT_EQ(value_argument(result.program.tasks[1], 4).toIntVector(), (Numbers{3, 1}));
  expect_same(result.program, function, image_);
}

TEST_F(FoldPadding, NumbersThatAreComplexArePaddedWithAsBefore) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor spectrum =
                  at::constant_pad_nd(at::fft_fft(in[0]), {1, 1}, c10::complex<double>(0, 2));
              return {convolve(at::constant_pad_nd(in[0], {1, 1})), at::real(spectrum).exp()};
            }),
            1u);
}

TEST_F(FoldPadding, OfOneDimensionAndOfThree) {
  const at::Tensor line = torch::randn({4, 2, 3}), cube = torch::randn({4, 2, 3, 3, 3});
  const std::vector<std::string> convolution = {"aten::convolution"};
  const Tensors lines = {torch::randn({2, 2, 8})}, cubes = {torch::randn({2, 2, 4, 5, 6})};
  EXPECT_EQ(operators(forced(
                          [&](const Tensors& in) -> Tensors {
                            return {at::conv1d(at::constant_pad_nd(in[0], {1, 1}), line)};
                          },
                          lines, kFoldPadding)
                          .program),
            convolution);
  const Function over_cubes = [&](const Tensors& in) -> Tensors {
    return {at::conv3d(at::constant_pad_nd(in[0], {1, 1, 2, 2}), cube)};
  };
  const Forced result = forced(over_cubes, cubes, kFoldPadding);
  EXPECT_EQ(operators(result.program), convolution);
  expect_same(result.program, over_cubes, cubes);
}

TEST_F(FoldPadding, BecomesPartOfPooling) {
  expect_operators(
      [](const Tensors& in) -> Tensors {
        return {at::avg_pool2d(at::constant_pad_nd(in[0], {1, 1, 1, 1}), 3, 2, 0, false, false)};
      },
      {"aten::avg_pool2d"});
  expect_operators(
      [](const Tensors& in) -> Tensors {
        return {at::avg_pool2d(at::constant_pad_nd(in[0], {1, 1, 1, 1}), 4, 2, 1, false, true)};
      },
      {"aten::avg_pool2d"});
  expect_operators(
      [](const Tensors& in) -> Tensors {
        return {at::max_pool2d(at::constant_pad_nd(in[0], {1, 1, 1, 1}, -kInfinity), 3, 2)};
      },
      {"aten::max_pool2d_with_indices"});
}

TEST_F(FoldPadding, NotAnotherValue) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {convolve(at::constant_pad_nd(in[0], {1, 1, 1, 1}, 2))};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {at::max_pool2d(at::constant_pad_nd(in[0], {1, 1, 1, 1}), 3)};
            }),
            0u);
}

TEST_F(FoldPadding, NotMoreOnOneSideNorLess) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {convolve(at::constant_pad_nd(in[0], {0, 1, 0, 1}))};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {convolve(at::constant_pad_nd(in[0], {-1, -1, 1, 1}))};
            }),
            0u);
}

TEST_F(FoldPadding, NotOfOtherDimensions) {
  const at::Tensor wide = torch::randn({4, 6, 3, 3});
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {at::conv2d(at::constant_pad_nd(in[0], {1, 1, 1, 1, 1, 1}), wide)};
            }),
            0u);
}

TEST_F(FoldPadding, NotMoreThanAFilterOrAWindowReaches) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {convolve(at::constant_pad_nd(in[0], {3, 3, 0, 0}))};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {at::avg_pool2d(at::constant_pad_nd(in[0], {2, 2, 2, 2}), 3)};
            }),
            0u);
}

TEST_F(FoldPadding, NotWhereAPoolingCountsOrRoundsOtherwise) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {at::avg_pool2d(at::constant_pad_nd(in[0], {1, 1, 1, 1}), 4, 2, 1, false, false)};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {at::avg_pool2d(at::constant_pad_nd(in[0], {1, 1, 1, 1}), 3, 2, 0, true)};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const auto [values, places] =
                  at::max_pool2d_with_indices(at::constant_pad_nd(in[0], {1, 1, 1, 1}, -kInfinity), 3);
              return {values, places};
            }),
            0u);
}

TEST_F(FoldPadding, NotForATransposedConvolution) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {at::conv_transpose2d(at::constant_pad_nd(in[0], {1, 1, 1, 1}), weight_)};
            }),
            0u);
}

TEST_F(FoldPadding, NotIfSomebodyElseSeesIt) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor padded = at::constant_pad_nd(in[0], {1, 1, 1, 1});
              return {convolve(padded), padded.relu()};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor padded = at::constant_pad_nd(in[0], {1, 1, 1, 1});
              return {convolve(padded), padded};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {convolve(at::constant_pad_nd(in[0], {1, 1, 1, 1}).slice(2, 1))};
            }),
            0u);
}

TEST_F(FoldPadding, NotIfTheImageOrThePaddingChanges) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor x = in[0] * 2;
              const at::Tensor padded = at::constant_pad_nd(x, {1, 1, 1, 1});
              x.select(0, 0).zero_();
              return {convolve(padded), x + 1};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor padded = at::constant_pad_nd(in[0], {1, 1, 1, 1});
              padded.select(2, 0).fill_(1);
              return {convolve(padded)};
            }),
            0u);
}

TEST_F(FoldPadding, RandomProgramsGiveWhatEagerGives) {
  using Values = RandomValues;
  const auto up_to = [](Values& v, std::size_t most) {
    return static_cast<std::int64_t>(v.number_below(most + 1));
  };
  // Of the image's size again, by more or less on one side.
  const auto fitted = [](const at::Tensor& x) {
    return at::constant_pad_nd(x, {0, 9 - x.size(3), 0, 7 - x.size(2)}, 1);
  };
  const auto padded = [&](Values& v, double value) {
    const std::int64_t height = up_to(v, 2), width = up_to(v, 2);
    const std::int64_t more = v.number_below(4) == 0 ? 1 : 0;
    return at::constant_pad_nd(v.pick(), {width, width + more, height, height}, value);
  };
  const std::vector<Values::Operation> operations = {
      [&](Values& v) {
        const at::Tensor x = padded(v, v.number_below(4) == 0 ? 1 : 0);
        return fitted(at::conv2d(x, weight_, {}, up_to(v, 1) + 1, at::IntArrayRef{2, 0}));
      },
      [&](Values& v) {
        const at::Tensor x = padded(v, 0);
        return fitted(at::avg_pool2d(x, 5, 1, up_to(v, 1), false, v.number_below(2) == 0));
      },
      [&](Values& v) {
        const at::Tensor x = padded(v, v.number_below(2) == 0 ? 0 : -kInfinity);
        return fitted(at::max_pool2d(x, 5, 1, up_to(v, 1)));
      },
      [&](Values& v) {
        v.pick_own().select(0, 0).mul_(0.5);
        return at::Tensor();
      },
      [&](Values& v) { return v.pick() + v.pick(); },
  };
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Function function = [&](const Tensors& in) -> Tensors {
      Values values({in[0], in[0] * 2}, /*made=*/1, seed);
      values.grow(6, operations);
      return {values.last() + 1};
    };
    fired += fired_on(function);
  }
  EXPECT_GT(fired, 10u);
}

}  // namespace
}  // namespace nimble
