// Convolutions by oneDNN that are none of float32 images: transposed ones, volumes, half precision.
#include <random>

#include "nimble/torch/rewrites/onednn.h"
#include "rewritten.h"

namespace nimble {
namespace {

double furthest(const at::Tensor& a, const at::Tensor& exact) {
  return (a.to(at::kDouble) - exact).abs().max().item<double>();
}

class MkldnnKinds : public RewriteTest {
 protected:
  // `layer` of (input, weight, bias), with weights that never change.
  using Layer = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;
  struct Of {
    at::Tensor x, weight, bias;
  };

  static Function function(const Layer& layer, const Of& of) {
    return [=](const Tensors& in) -> Tensors { return {layer(in[0], of.weight, of.bias)}; };
  }
  static Program packed(const Layer& layer, const Of& of) {
    return rewritten(function(layer, of), {of.x}, {"mkldnn_convolution"});
  }
  static std::size_t times(const Layer& layer, const Of& of) {
    return fired(function(layer, of), {of.x}, "mkldnn_convolution");
  }

  // On an input that it was not recorded with: at most twice as far from float64 as eager, or a few
  // roundings.
  static void expect_near(const Program& program, const Layer& layer, const Of& of) {
    const at::Tensor x = at::randn_like(of.x), given = run(program, {x})[0],
                     eager = layer(x, of.weight, of.bias),
                     exact = layer(x.to(at::kDouble), of.weight.to(at::kDouble), of.bias.to(at::kDouble));
    const double rounding = x.scalar_type() == at::kFloat ? 1e-6 : 8e-3;
    const double allowed =
        std::max(2 * furthest(eager, exact), 4 * rounding * exact.abs().max().item<double>());
    EXPECT_LE(furthest(given, exact), allowed);
    EXPECT_EQ(given.scalar_type(), eager.scalar_type());
    EXPECT_EQ(given.strides(), eager.strides());
  }

  static at::Tensor upscaled(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    return at::conv_transpose2d(x, w, b, 2, 1, 1).relu();
  }
  const Of transposed_ = {torch::randn({2, 6, 5, 7}), torch::randn({6, 8, 3, 3}), torch::randn({8})};
  const Of volume_ = {torch::randn({2, 6, 3, 5, 7}), torch::randn({8, 6, 3, 3, 3}), torch::randn({8})};
};

TEST_F(MkldnnKinds, TransposedConvolutionsTakeTheirActivationIn) {
  EXPECT_EQ(drawn(record({transposed_.x}, function(upscaled, transposed_))), R"(
%0 = convolution(input0, extern0, extern1)
%1 = relu(%0)
return %1
)");
  const Program program = packed(upscaled, transposed_);
  EXPECT_EQ(drawn(program), R"(
%0 = nimble::mkldnn_transposed_convolution(input0, extern0, extern1)
%1 = copy_(%1, %0)
return %1
)");
  expect_near(program, upscaled, transposed_);
}

TEST_F(MkldnnKinds, TransposedConvolutionsPackAgainWhenTheirWeightChanges) {
  const Program program = packed(upscaled, transposed_);
  transposed_.weight.mul_(2);
  derive_all(program);
  expect_near(program, upscaled, transposed_);
}

TEST_F(MkldnnKinds, TransposedConvolutionsLeaveSumsAlone) {
  const Layer layer = [](auto x, auto w, auto b) {
    return (at::conv_transpose2d(x, w, b) + at::ones({2, 8, 7, 9}, x.options())).relu();
  };
  const Program program = packed(layer, transposed_);
  EXPECT_EQ(operators(program), (std::vector<std::string>{"nimble::mkldnn_transposed_convolution",
                                                          "aten::add", "aten::relu", "aten::copy_"}));
  expect_near(program, layer, transposed_);
}

TEST_F(MkldnnKinds, NotTransposedDepthwise) {
  const Layer layer = [](auto x, auto w, auto b) { return at::conv_transpose2d(x, w, b, 2, 1, 0, 6); };
  EXPECT_EQ(times(layer, {torch::randn({2, 6, 5, 7}), torch::randn({6, 1, 3, 3}), torch::randn({6})}), 0u);
}

TEST_F(MkldnnKinds, NotTransposedWithMoreOutputPaddingThanItsStride) {
  const Layer layer = [](auto x, auto w, auto b) { return at::conv_transpose2d(x, w, b, 1, 0, 1, 1, 2); };
  EXPECT_EQ(times(layer, transposed_), 0u);
}

TEST_F(MkldnnKinds, VolumesTakeSumsAndActivationsIn) {
  const Layer layer = [](auto x, auto w, auto b) {
    return (at::conv3d(x, w, b, 1, 1) + at::ones({2, 8, 3, 5, 7}, x.options())).relu();
  };
  const Program program = packed(layer, volume_);
  EXPECT_EQ(operators(program), (std::vector<std::string>{"nimble::mkldnn_convolution", "aten::copy_"}));
  expect_near(program, layer, volume_);
}

TEST_F(MkldnnKinds, NotVolumesInHalfPrecisionNorTransposedOnes) {
  const Of half = {volume_.x.to(at::kBFloat16), volume_.weight.to(at::kBFloat16),
                   volume_.bias.to(at::kBFloat16)};
  EXPECT_EQ(times([](auto x, auto w, auto b) { return at::conv3d(x, w, b); }, half), 0u);
  EXPECT_EQ(times([](auto x, auto w, auto b) { return at::conv_transpose3d(x, w, b); },
                  {volume_.x, torch::randn({6, 8, 3, 3, 3}), volume_.bias}),
            0u);
}

// oneDNN's kernel for this one crashes.
TEST_F(MkldnnKinds, NotFiltersThatSeeOnlyPadding) {
  const Layer layer = [](auto x, auto w, auto b) { return at::conv2d(x, w, b, 2, 1, 2); };
  EXPECT_EQ(times(layer, {torch::randn({1, 8, 3, 1}), torch::randn({4, 8, 1, 1}), torch::randn({4})}), 0u);
}

TEST_F(MkldnnKinds, NotLines) {
  EXPECT_EQ(times([](auto x, auto w, auto b) { return at::conv1d(x, w, b); },
                  {torch::randn({2, 6, 9}), torch::randn({8, 6, 3}), torch::randn({8})}),
            0u);
}

TEST_F(MkldnnKinds, HalfPrecisionWhereTheProcessorHasIt) {
  const Layer layer = [](auto x, auto w, auto b) { return at::silu(at::conv2d(x, w, b)); };
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(type);
    const Of of = {torch::randn({2, 6, 5, 7}).to(type), torch::randn({8, 6, 3, 3}).to(type),
                   torch::randn({8}).to(type)};
    EXPECT_EQ(times(layer, of), onednn_computes(type) ? 1u : 0u);
    expect_near(packed(layer, of), layer, of);
  }
}

// Eager's autocast keeps the weights in float32 and casts them at each call.
TEST_F(MkldnnKinds, WeightsThatAutocastCastsArePackedOnce) {
  if (!onednn_computes(at::kBFloat16)) GTEST_SKIP() << "no bfloat16 on this processor";
  const at::Tensor x = torch::randn({2, 6, 5, 7}), weight = torch::randn({8, 6, 3, 3});
  const Program program = rewritten(
      [&](const Tensors& in) -> Tensors {
        return {at::conv2d(in[0].to(at::kBFloat16), weight.to(at::kBFloat16)).relu()};
      },
      {x}, {"mkldnn_convolution"});
  EXPECT_EQ(drawn(program), R"(
%0 = _to_copy(input0)
%1 = nimble::mkldnn_convolution(%0, derived0)
%2 = copy_(%2, %1)
return %2
)");
}

// Whatever fits: sizes of filters, strides, paddings, dilations, groups.
struct Geometry {
  explicit Geometry(std::uint64_t seed) : random(seed) {
    groups = pick({1, 1, 2, 3});
    dilation = pick({1, 1, 2});
    stride = pick({1, 2, 3});
    size = pick({1, 2, 3, 4});
    padding = size > 1 ? pick({0, 1}) : 0;
    output_padding = stride > 1 ? pick({0, 1}) : 0;
    transposed = pick({0, 1}) == 1;
    dimensions = transposed ? 2 : pick({2, 3});
  }
  std::int64_t pick(std::vector<std::int64_t> of) { return of[random() % of.size()]; }

  at::Tensor weight() const {
    std::vector<std::int64_t> sizes =
        transposed ? std::vector<std::int64_t>{6, 12 / groups} : std::vector<std::int64_t>{12, 6 / groups};
    sizes.insert(sizes.end(), static_cast<std::size_t>(dimensions), size);
    return torch::randn(sizes);
  }
  at::Tensor input() const {
    return torch::randn(dimensions == 2 ? std::vector<std::int64_t>{2, 6, 9, 11}
                                        : std::vector<std::int64_t>{2, 6, 7, 9, 8});
  }
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const {
    const auto each = [&](std::int64_t n) {
      return std::vector<std::int64_t>(static_cast<std::size_t>(dimensions), n);
    };
    return at::leaky_relu(at::convolution(x, w, b, each(stride), each(padding), each(dilation), transposed,
                                          each(transposed ? output_padding : 0), groups),
                          0.2);
  }

  std::mt19937_64 random;
  std::int64_t groups, dilation, stride, size, padding, output_padding, dimensions;
  bool transposed;
};

TEST_F(MkldnnKinds, RandomGeometriesGiveWhatEagerGives) {
  std::map<std::string, std::size_t> fired;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const Geometry geometry(seed);
    std::vector<at::ScalarType> types = {at::kFloat};
    if (onednn_computes(at::kBFloat16) && geometry.dimensions == 2) types.push_back(at::kBFloat16);
    for (const auto type : types) {
      SCOPED_TRACE(type);
      const Of of = {geometry.input().to(type), geometry.weight().to(type), torch::randn({12}).to(type)};
      const Program program = packed(geometry, of);
      expect_near(program, geometry, of);
      for (const std::string& name : operators(program)) ++fired[name];
    }
  }
  EXPECT_GT(fired["nimble::mkldnn_convolution"], 60u);
  EXPECT_GT(fired["nimble::mkldnn_transposed_convolution"], 60u);
}

}  // namespace
}  // namespace nimble
