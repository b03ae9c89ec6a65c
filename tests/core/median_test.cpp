#include "nimble/core/median.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

TEST(Median, IsTheOneInTheMiddle) {
  EXPECT_EQ(median(std::vector{5, 1, 100}), 5);
  EXPECT_EQ(median(std::vector{0.5}), 0.5);
}

TEST(Median, OfAnEvenNumberIsTheLargerOfTheTwoInTheMiddle) { EXPECT_EQ(median(std::vector{4, 1, 3, 2}), 3); }

}  // namespace
}  // namespace nimble
