#include "nimble/engine/tolerance.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace nimble {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tolerance::Reference run_in_double(const at::Tensor& exact) {
  return [exact] { return std::vector{exact}; };
}

TEST(Tolerance, AllowsAPartOfTheLargestValueByType) {
  const Tolerance tolerance({}, /*coarse=*/false);
  const at::Tensor eager = at::tensor({1.0, -100.0}, at::kFloat);
  const at::Tensor near = at::tensor({1.009, -100.0}, at::kFloat);
  EXPECT_FALSE(tolerance.excess(0, near, eager));
  EXPECT_EQ(tolerance.excess(0, at::tensor({1.5, -100.0}, at::kFloat), eager),
            "by 5.0e-03 of its largest value, 1.0e-04 allowed");
  EXPECT_TRUE(tolerance.excess(0, near.to(at::kDouble), eager.to(at::kDouble)));
}

TEST(Tolerance, OfTheUserCountsForEveryType) {
  const Tolerance tolerance(0.1, /*coarse=*/true, run_in_double(at::tensor({1.0, 4.0}, at::kDouble)));
  EXPECT_FALSE(tolerance.excess(0, at::tensor({1.3, 4.0}), at::tensor({1.0, 4.0})));
  EXPECT_EQ(tolerance.excess(0, at::tensor({2.0, 4.0}), at::tensor({1.0, 4.0})),
            "by 2.5e-01 of its largest value, 1.0e-01 allowed");
}

// The gradient of a bias behind which a batch norm takes every mean away: nothing, but for what was rounded.
TEST(Tolerance, OfTheUserDoesNotAskForEagersRoundingWhereThereIsNothingElse) {
  const at::Tensor exact = at::zeros({4}, at::kDouble), eager = at::tensor({1e-8, -3e-8, 2e-8, 1e-8});
  const Tolerance tolerance(1.0, /*coarse=*/false, run_in_double(exact));
  EXPECT_FALSE(tolerance.excess(0, -1.5 * eager, eager));
  EXPECT_EQ(tolerance.excess(0, -3 * eager, eager),
            "by 4.0e+00 of its largest value, 1.0e+00 allowed, and beside a run in float64 its mean error is "
            "1.9e+00 of its largest value, eager's 6.5e-01, allowed 1.3e+00");
}

TEST(Tolerance, OfTheUserIsKeptWhereEagersValueIsMoreThanRounding) {
  const at::Tensor exact = at::full({4}, 1.0, at::kDouble), eager = at::full({4}, 1.01);
  const Tolerance tolerance(1e-3, /*coarse=*/false, run_in_double(exact));
  EXPECT_EQ(tolerance.excess(0, at::full({4}, 0.995), eager),
            "by 1.5e-02 of its largest value, 1.0e-03 allowed");
}

TEST(Tolerance, WhereEagerIsInfiniteAndARunInDoubleIsNotNothingMoreIsAllowed) {
  const at::Tensor exact = at::full({4}, 1.0, at::kDouble);
  at::Tensor eager = at::full({4}, 1.0), far = at::full({4}, 100.0);
  eager[0] = far[0] = kInfinity;
  EXPECT_TRUE(Tolerance(0.05, /*coarse=*/false, run_in_double(exact)).excess(0, far, eager));
}

TEST(Tolerance, ARunInDoubleThatIsFarAboveEagersShowsNoRounding) {
  const at::Tensor exact = at::full({4}, 100.0, at::kDouble), eager = at::full({4}, 1.0);
  EXPECT_TRUE(Tolerance(0.05, /*coarse=*/false, run_in_double(exact)).excess(0, 3 * eager, eager));
}

TEST(Tolerance, OfNothingAllowsNothing) {
  const at::Tensor exact = at::zeros({4}, at::kDouble), eager = at::full({4}, 1e-8);
  EXPECT_TRUE(Tolerance(0.0, /*coarse=*/false, run_in_double(exact)).excess(0, -eager, eager));
}

TEST(Tolerance, OfTheUserNeedsNoRunInDoublePrecisionWhereItIsKept) {
  const Tolerance tolerance(0.1, /*coarse=*/true, []() -> std::vector<at::Tensor> {
    ADD_FAILURE() << "it takes memory and time";
    return {};
  });
  EXPECT_FALSE(tolerance.excess(0, at::tensor({1.3, 4.0}), at::tensor({1.0, 4.0})));
}

TEST(Tolerance, AllowsTwiceEagersErrorWhereEagerIsCoarse) {
  const at::Tensor exact = at::full({8}, 4.0, at::kDouble), eager = at::full({8}, 4.5, at::kHalf);
  const Tolerance tolerance({}, /*coarse=*/false, run_in_double(exact));
  EXPECT_FALSE(tolerance.excess(0, at::full({8}, 3.25, at::kHalf), eager));
  EXPECT_EQ(tolerance.excess(0, at::full({8}, 6.25, at::kHalf), eager),
            "its mean error is 5.0e-01 of its largest value, eager's 1.1e-01, allowed 2.2e-01");
  at::Tensor one_far_off = eager.clone();
  one_far_off[3] = 6.25;
  EXPECT_EQ(tolerance.excess(0, one_far_off, eager),
            "its largest error is 5.0e-01 of its largest value, eager's 1.1e-01, allowed 4.4e-01");
}

TEST(Tolerance, WhereEagerWasLuckyItsUsualErrorCounts) {
  const at::Tensor exact = at::full({8}, 4.0, at::kDouble), lucky = at::full({8}, 4.0, at::kHalf);
  const at::Tensor ours = at::full({8}, 4.5, at::kHalf);
  int asked = 0;
  const auto with = [&](double usual) {
    return Tolerance({}, /*coarse=*/false, run_in_double(exact), [&asked, usual] {
      ++asked;
      return std::vector<double>{usual};
    });
  };
  EXPECT_FALSE(with(0.3).excess(0, ours, lucky));
  EXPECT_EQ(with(0.2).excess(0, ours, lucky),
            "its mean error is 1.2e-01 of its largest value, eager's 5.0e-02, allowed 1.0e-01");
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(with(0.0).excess(0, lucky.clone(), lucky));
  EXPECT_EQ(asked, 2) << "measuring it takes time, and there was no need";
}

TEST(Tolerance, InfinitiesAreWhereEagersAre) {
  const Tolerance tolerance({}, /*coarse=*/false);
  const at::Tensor eager = at::tensor({1.0, kInfinity});
  EXPECT_FALSE(tolerance.excess(0, eager.clone(), eager));
  EXPECT_EQ(tolerance.excess(0, at::tensor({1.0, 2.0}), eager), "not the same of its values are finite");
}

TEST(Tolerance, WhatIsNoFloatingPointNumberMustBeEqual) {
  const Tolerance tolerance(0.5, /*coarse=*/true);
  EXPECT_EQ(tolerance.excess(0, at::tensor({3}), at::tensor({4})), "it must be equal");
}

}  // namespace
}  // namespace nimble
