// The kernels of batch norms in training, forward and back, run on the host, against ATen in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nimble/core/error.h"
#include "nimble/kernels/batch_norm.h"
#include "nimble/kernels/batch_norm_source.h"
#include "tests/kernels/host_device.h"

namespace nimble::kernels {
namespace {

constexpr double kMomentum = 0.1, kEpsilon = 1e-5;
using Sizes = std::vector<std::int64_t>;
// In one block each, with pixels in vectors, not in vectors and none at all; in several blocks.
const Sizes kSmall = {2, 3, 4, 4}, kLarge = {2, 3, 64, 72};
const std::vector<Sizes> kShapes = {kSmall, {3, 5, 7, 7}, {32, 4}, kLarge, {40, 2, 15, 15}};

at::Tensor in_double(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kDouble) : tensor; }

double largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

double rounding(at::ScalarType type) {
  return type == at::kHalf ? 0x1p-10 : (type == at::kBFloat16 ? 0x1p-7 : 0x1p-18);
}

void expect_near(const at::Tensor& given, const at::Tensor& exact, const std::string& what) {
  EXPECT_LE(largest(in_double(given) - exact), rounding(given.scalar_type()) * (largest(exact) + 1e-3))
      << what;
}

// A batch norm, and what its kernels make of it.
struct Case {
  at::Tensor x, residual, gradient, weight, bias, running_mean, running_variance;
  std::string activation;

  Case(const Sizes& sizes, at::ScalarType type, bool adds, std::string activation, double mean = 0.5)
      : x((at::randn(sizes) + mean).to(type)),
        residual(adds ? at::randn(sizes).to(type) : at::Tensor()),
        gradient(at::randn(sizes).to(type)),
        weight(at::randn({sizes[1]})),
        bias(at::randn({sizes[1]})),
        running_mean(at::randn({sizes[1]})),
        running_variance(at::rand({sizes[1]}) + 0.5),
        activation(std::move(activation)) {}

  BatchNorm norm() const { return *BatchNorm::of(x, {residual, gradient}, activation); }

  std::vector<at::Tensor> forward(const at::Tensor& mean, const at::Tensor& variance) const {
    const at::Tensor y = at::empty_like(x), found_mean = at::empty_like(weight),
                     inverse = at::empty_like(weight), room = at::full(norm().room(), NAN);
    for (const KernelSource& kernel :
         batch_norm_sources(norm(), kMomentum, kEpsilon, mean.defined(), residual.defined())) {
      testing::run_on_host(kernel, {x, residual, weight, bias, mean, variance, y, found_mean, inverse, room});
    }
    return {y, found_mean, inverse};
  }

  std::vector<at::Tensor> backward(const at::Tensor& mean, const at::Tensor& inverse) const {
    const at::Tensor x_gradient = at::empty_like(x), weight_gradient = at::empty_like(weight),
                     bias_gradient = at::empty_like(weight), room = at::full(norm().room(), NAN);
    for (const KernelSource& kernel : batch_norm_backward_sources(norm())) {
      testing::run_on_host(kernel, {gradient, x, weight, bias, mean, inverse, x_gradient, weight_gradient,
                                    bias_gradient, room});
    }
    return {x_gradient, weight_gradient, bias_gradient};
  }

  std::string name() const {
    return c10::str(x.scalar_type(), " ", x.sizes(), residual.defined() ? " and a sum, " : ", ", activation);
  }
};

void expect_forward(const Case& c) {
  at::Tensor mean = c.running_mean.clone(), variance = c.running_variance.clone();
  const auto given = c.forward(mean, variance);
  at::Tensor exact_mean = in_double(c.running_mean), exact_variance = in_double(c.running_variance);
  const auto residual = c.residual.defined() ? std::optional(in_double(c.residual)) : std::nullopt;
  const auto [y, batch_mean, inverse, room] =
      batch_norm_training(in_double(c.x), in_double(c.weight), in_double(c.bias), exact_mean, exact_variance,
                          kMomentum, kEpsilon, residual, c.activation);
  expect_near(given[0], y, "result of " + c.name());
  expect_near(given[1], batch_mean, "mean of " + c.name());
  expect_near(given[2], inverse, "deviation of " + c.name());
  expect_near(mean, exact_mean, "running mean of " + c.name());
  expect_near(variance, exact_variance, "running variance of " + c.name());
}

void expect_backward(const Case& c) {
  const auto forward = c.forward({}, {});
  const auto given = c.backward(forward[1], forward[2]);
  const auto [x_gradient, weight_gradient, bias_gradient, room] = batch_norm_training_backward(
      in_double(c.gradient), in_double(c.x), in_double(c.weight), in_double(c.bias), in_double(forward[1]),
      in_double(forward[2]), c.activation);
  expect_near(given[0], x_gradient, "gradient of " + c.name());
  expect_near(given[1], weight_gradient, "gradient of the weight of " + c.name());
  expect_near(given[2], bias_gradient, "gradient of the bias of " + c.name());
}

TEST(BatchNormTest, EveryShapeAndTypeForward) {
  for (const Sizes& sizes : kShapes) expect_forward({sizes, at::kFloat, false, "relu"});
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    for (const Sizes& sizes : {kSmall, kLarge}) expect_forward({sizes, type, true, "relu"});
  }
}

TEST(BatchNormTest, WithASumAndEveryActivation) {
  for (const bool adds : {false, true}) {
    for (const char* activation : {"none", "relu", "relu6", "silu"}) {
      expect_forward({kSmall, at::kFloat, adds, activation});
    }
  }
  expect_forward({kLarge, at::kFloat, true, "relu"});
}

TEST(BatchNormTest, EveryShapeAndTypeBackward) {
  for (const Sizes& sizes : kShapes) expect_backward({sizes, at::kFloat, false, "relu"});
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    for (const Sizes& sizes : {kSmall, kLarge}) expect_backward({sizes, type, false, "relu"});
  }
}

TEST(BatchNormTest, BackThroughEveryActivationThatHasAWayBack) {
  for (const char* activation : {"none", "relu", "relu6"}) {
    expect_backward({kSmall, at::kFloat, false, activation, 2.0});
  }
  EXPECT_FALSE(has_way_back("silu"));
  EXPECT_THROW(batch_norm_backward_sources(Case(kSmall, at::kFloat, false, "silu").norm()), InvalidInput);
}

// The way back decides by the bits that the forward pass made.
TEST(BatchNormTest, WhatTheActivationStoppedStaysStopped) {
  for (const Sizes& sizes : kShapes) {
    Case c(sizes, at::kFloat, false, "relu");
    c.gradient = at::ones_like(c.x);
    const auto forward = c.forward({}, {});
    // Of a gradient of one everywhere, that of the bias counts what went through.
    const auto given = c.backward(forward[1], forward[2]);
    std::vector<std::int64_t> others;
    for (std::int64_t d = 0; d < c.x.dim(); ++d) {
      if (d != 1) others.push_back(d);
    }
    EXPECT_TRUE(at::equal(given[2], forward[0].gt(0).sum(others).to(at::kFloat))) << c.name();
  }
}

TEST(BatchNormTest, NumbersFarFromZeroKeepTheirDeviation) {
  for (const Sizes& sizes : kShapes) {
    const Case c(sizes, at::kFloat, false, "none", 1000.0);
    const auto given = c.forward({}, {});
    const auto exact = std::get<2>(at::native_batch_norm(in_double(c.x), {}, {}, {}, {}, true, 0, kEpsilon));
    EXPECT_LE(largest(in_double(given[2]) / exact - 1), 1e-4) << c.name();
  }
}

TEST(BatchNormTest, OneBlockKeepsASmallChannelAndSeveralShareALargeOne) {
  const auto kernels = [](const Sizes& sizes) {
    return batch_norm_backward_sources(*BatchNorm::of(at::empty(sizes, at::kMeta), {}, "relu"));
  };
  EXPECT_EQ(kernels({32, 512, 7, 7}).size(), 1u);
  EXPECT_EQ(kernels({32, 512, 7, 7})[0].blocks, 512u);
  const auto large = kernels({32, 64, 112, 112});
  ASSERT_EQ(large.size(), 2u);
  EXPECT_EQ(large[0].blocks % 64, 0u);
  EXPECT_GT(large[0].blocks, 132u * 8);
}

TEST(BatchNormTest, OnlyWhatLiesInARowAndIsAFloat) {
  const at::Tensor x = at::randn({2, 3, 4, 4});
  EXPECT_TRUE(BatchNorm::of(x, {}, "none"));
  EXPECT_FALSE(BatchNorm::of(x.contiguous(at::MemoryFormat::ChannelsLast), {}, "none"));
  EXPECT_FALSE(BatchNorm::of(x, {x.to(at::kHalf)}, "none"));
  EXPECT_FALSE(BatchNorm::of(x, {x.select(0, 0)}, "none"));
  EXPECT_FALSE(BatchNorm::of(x.to(at::kDouble), {}, "none"));
  EXPECT_FALSE(BatchNorm::of(x.select(0, 0).select(0, 0).select(0, 0), {}, "none"));
  EXPECT_FALSE(BatchNorm::of(at::empty({0, 3, 4, 4}), {}, "none"));
}

}  // namespace
}  // namespace nimble::kernels
