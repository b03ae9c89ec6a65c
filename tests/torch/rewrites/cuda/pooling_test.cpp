#include "forced.h"

namespace nimble {
namespace {

class PoolingRewrite : public RewriteTest {
 protected:
  void expect_operators(const Function& function, const std::vector<std::string>& names) {
    const Forced result = forced(function, image_, kPooling);
    EXPECT_EQ(operators(result.program), names);
    expect_same(result.program, function, image_);
  }
  const Tensors image_ = {torch::randn({2, 8, 9, 9}).contiguous(at::MemoryFormat::ChannelsLast)};
};

TEST_F(PoolingRewrite, EveryKind) {
  expect_operators([](const Tensors& in) -> Tensors { return {at::max_pool2d(in[0], 3, 2, 1)}; },
                   {"nimble::max_pool2d"});
  expect_operators([](const Tensors& in) -> Tensors { return {at::avg_pool2d(in[0], 3, 2, 1, true, false)}; },
                   {"nimble::avg_pool2d"});
  expect_operators(
      [](const Tensors& in) -> Tensors {
        return {at::adaptive_avg_pool2d(in[0], {3, 3})};
      },
      {"nimble::adaptive_avg_pool2d"});
}

TEST_F(PoolingRewrite, MeansOverTheImage) {
  for (const bool keep : {true, false}) {
    expect_operators(
        [=](const Tensors& in) -> Tensors {
          return {in[0].mean({2, 3}, keep) * 2};
        },
        {"nimble::adaptive_avg_pool2d", "aten::mul"});
    expect_operators(
        [=](const Tensors& in) -> Tensors {
          return {in[0].mean({-1, -2}, keep).flatten(1) * 2};
        },
        {"nimble::adaptive_avg_pool2d", "aten::mul"});
  }
}

TEST_F(PoolingRewrite, NotWhereThePlacesOfMaximaAreWanted) {
  expect_operators(
      [](const Tensors& in) -> Tensors {
        const auto [values, places] = at::max_pool2d_with_indices(in[0], 3);
        return {values, places};
      },
      {"aten::max_pool2d_with_indices"});
}

TEST_F(PoolingRewrite, NotOverOtherDimensionsOrOtherLayouts) {
  expect_operators([](const Tensors& in) -> Tensors { return {in[0].mean({1, 2})}; }, {"aten::mean"});
  const Tensors contiguous = {image_[0].contiguous()};
  const Function pool = [](const Tensors& in) -> Tensors { return {at::max_pool2d(in[0], 3)}; };
  EXPECT_TRUE(forced(pool, contiguous, kPooling).sites.empty());
}

}  // namespace
}  // namespace nimble
