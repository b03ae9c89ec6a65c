#include <random>

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

TEST_F(PoolingRewrite, NotPlacesThatAreLookedAtThroughAView) {
  expect_operators(
      [](const Tensors& in) -> Tensors {
        const auto [values, places] = at::max_pool2d_with_indices(in[0], 3);
        return {values, places.select(0, 0) + 1};
      },
      {"aten::max_pool2d_with_indices", "aten::add"});
}

TEST_F(PoolingRewrite, WhatIsPooledMayBeOverwrittenAfterwards) {
  expect_operators(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0] * 2;
        const at::Tensor pooled = at::max_pool2d(x, 3, 1, 1);
        x.select(0, 0).zero_();
        return {pooled + x};
      },
      {"aten::mul", "nimble::max_pool2d", "aten::zero_", "aten::add"});
}

// All kinds of pooling, one behind and beside the other, with what may stand in their way: views, writes,
// other readers.
TEST_F(PoolingRewrite, RandomProgramsGiveWhatEagerGives) {
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      std::mt19937 random(seed);
      const auto between = [&](std::int64_t least, std::int64_t most) {
        return least + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1));
      };
      const auto is_true = [&] { return random() % 2 == 0; };
      Tensors images = {in[0] * 2}, others;  // never the argument in place
      for (int i = 0; i < 8; ++i) {
        const at::Tensor x = images[random() % images.size()];
        const std::int64_t size = between(1, std::min<std::int64_t>({3, x.size(2), x.size(3)}));
        const std::int64_t stride = between(1, 2), padding = between(0, size / 2);
        switch (random() % 8) {
          case 0:
            images.push_back(at::max_pool2d(x, size, stride, padding, 1, is_true()));
            break;
          case 1:
            images.push_back(at::avg_pool2d(x, size, stride, padding, is_true(), is_true()));
            break;
          case 2:
            images.push_back(at::avg_pool2d(x, size, stride, padding, false, true, between(1, 5)));
            break;
          case 3:
            images.push_back(at::adaptive_avg_pool2d(x, {between(1, 4), between(1, 4)}));
            break;
          case 4:
            others.push_back(x.mean({-1, 2}, is_true()));
            break;
          case 5:
            images.push_back(at::relu_(images.back()));
            break;
          case 6:
            images.push_back(x.slice(1, 0, 4).relu());
            break;
          case 7: {
            const auto [values, places] = at::max_pool2d_with_indices(x, size, stride, padding);
            images.push_back(values);
            if (is_true()) others.push_back(places);
            break;
          }
        }
      }
      Tensors results = {images.back() * 1, images[images.size() / 2] * 1};
      for (const at::Tensor& other : others) results.push_back(other * 1);
      return results;
    };
    SCOPED_TRACE(seed);
    const Forced result = forced(function, image_, kPooling);
    fired += result.sites.size();
    expect_same(result.program, function, image_, 1e-5);
  }
  EXPECT_GT(fired, 200u);
}

}  // namespace
}  // namespace nimble
