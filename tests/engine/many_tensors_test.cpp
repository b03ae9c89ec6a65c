#include "nimble/engine/many_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nimble {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& tensor : tensors) found.push_back(tensor.defined() ? tensor.clone() : tensor);
  return found;
}

std::vector<at::Tensor> all_kinds() {
  return {at::randn({3, 5}),
          at::Tensor(),
          at::randn({4, 6}).t(),
          at::randn({8}, at::kHalf),
          at::randn({2, 2}, at::kComplexFloat),
          at::randint(100, {7}),
          at::empty({0, 3}),
          at::tensor({1.0, kNan, kInfinity}),
          at::scalar_tensor(4.0)};
}

TEST(ManyTensors, CopiesAreTheSameBits) {
  const auto tensors = all_kinds();
  EXPECT_TRUE(all_same_bits(tensors, copies(tensors)));
}

TEST(ManyTensors, OneElementOfOneTensorMakesADifference) {
  const auto tensors = all_kinds();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || tensors[i].numel() == 0) continue;
    auto others = copies(tensors);
    at::Tensor one = others[i];
    while (one.dim() > 0) one = one[0];
    one.add_(1);
    EXPECT_FALSE(all_same_bits(tensors, others)) << i;
  }
}

TEST(ManyTensors, MinusZeroIsNotZeroAndOneMoreTensorIsOneTooMany) {
  const std::vector<at::Tensor> zero = {at::zeros({2})}, minus_zero = {-at::zeros({2})};
  EXPECT_FALSE(all_same_bits(zero, minus_zero));
  EXPECT_FALSE(all_same_bits(zero, std::vector<at::Tensor>{zero[0], zero[0]}));
  EXPECT_FALSE(all_same_bits(zero, std::vector<at::Tensor>{at::Tensor()}));
  EXPECT_FALSE(all_same_bits(zero, std::vector<at::Tensor>{at::zeros({1, 2})}));
}

TEST(ManyTensors, MoreThanIsLookedAtTogetherIsStillLookedAt) {
  std::vector<at::Tensor> large;
  for (int i = 0; i < 3; ++i) large.push_back(at::zeros({10 << 20}));
  auto others = copies(large);
  EXPECT_TRUE(all_same_bits(large, others));
  others[2][5].fill_(3);
  EXPECT_FALSE(all_same_bits(large, others));
  EXPECT_EQ(distances(large, others), (std::vector<double>{0, 0, 3}));
}

TEST(ManyTensors, DistancesAreThoseOfTheFarthestElements) {
  const auto tensors = all_kinds();
  auto others = copies(tensors);
  others[0][1][2].add_(0.5);
  others[2][0][3].sub_(2);
  others[3][7].fill_(tensors[3][7].item<double>() + 1);
  others[4][0][1].add_(c10::complex<double>(0, 3));
  others[5][0].add_(40);
  const std::vector<double> apart = distances(tensors, others);
  EXPECT_NEAR(apart[0], 0.5, 1e-6);
  EXPECT_EQ(apart[1], 0);  // undefined
  EXPECT_NEAR(apart[2], 2, 1e-6);
  EXPECT_NEAR(apart[3], 1, 1e-2);
  EXPECT_NEAR(apart[4], 3, 1e-6);
  EXPECT_EQ(apart[5], 0);  // integers have bits, not distances
  EXPECT_EQ(apart[6], 0);  // empty
  EXPECT_EQ(apart[7], 0);
  EXPECT_EQ(apart[8], 0);
}

TEST(ManyTensors, WhatIsNoNumberIsNearItsLikeAndFarFromAllElse) {
  const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
    return distances(std::vector<at::Tensor>{a}, std::vector<at::Tensor>{b})[0];
  };
  const at::Tensor a = at::tensor({1.0, kNan, kInfinity});
  EXPECT_EQ(apart(a, at::tensor({1.5, kNan, kInfinity})), 0.5);
  EXPECT_EQ(apart(a, at::tensor({1.0, 0.0, kInfinity})), kInfinity);
  EXPECT_EQ(apart(a, at::tensor({1.0, kNan, -kInfinity})), kInfinity);
}

TEST(ManyTensors, ConjugatesThatWereNeverWrittenDownHaveDistances) {
  const at::Tensor a = at::tensor({c10::complex<float>(1, 2)}).conj(),
                   b = at::tensor({c10::complex<float>(1, 3)});
  EXPECT_EQ(distances(std::vector<at::Tensor>{a}, std::vector<at::Tensor>{b})[0], 5);
}

TEST(ManyTensors, WhatIsNoNumberHasNoMagnitude) {
  const std::vector<at::Tensor> tensors = {at::tensor({1.0, kNan, 2.0}), at::tensor({1.5, 3.0, kInfinity})};
  EXPECT_EQ(magnitudes(tensors), (std::vector<double>{2, 3}));
}

TEST(ManyTensors, MagnitudesAreThoseOfTheLargestElements) {
  const std::vector<at::Tensor> tensors = {at::tensor({1.0F, -7.0F}), at::Tensor(), at::tensor({2, 9}),
                                           at::tensor({0.25}).to(at::kHalf), at::empty({0})};
  EXPECT_EQ(magnitudes(tensors), (std::vector<double>{7, 0, 0, 0.25, 0}));
}

}  // namespace
}  // namespace nimble
