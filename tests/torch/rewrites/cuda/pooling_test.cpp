#include <random>

#include "../measured.h"
#include "forced.h"
#include "nimble/torch/rewrites/uses.h"

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

TEST_F(PoolingRewrite, TakesInTheActivationBehindIt) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::silu(at::avg_pool2d(in[0], 3, 2, 1)) * 2};
  };
  EXPECT_EQ(drawn(record(image_, function)), R"(
%0 = avg_pool2d(input0)
%1 = silu(%0)
%2 = mul(%1)
return %2
)");
  const Forced result = forced(function, image_, kPooling);
  EXPECT_EQ(drawn(result.program), R"(
%0 = nimble::avg_pool2d(input0)
%1 = mul(%0)
return %1
)");
  EXPECT_EQ(value_argument(result.program.tasks[0], 7).toStringRef(), "silu");
  expect_same(result.program, function, image_);
}

TEST_F(PoolingRewrite, EveryKindTakesInTheActivationBehindIt) {
  expect_operators([](const Tensors& in) -> Tensors { return {at::gelu(at::max_pool2d(in[0], 3, 2, 1))}; },
                   {"nimble::max_pool2d"});
  expect_operators(
      [](const Tensors& in) -> Tensors { return {at::hardtanh(at::avg_pool2d(in[0], 3), 0, 6)}; },
      {"nimble::avg_pool2d"});
  expect_operators(
      [](const Tensors& in) -> Tensors {
        return {at::adaptive_avg_pool2d(in[0], {3, 3}).relu_()};
      },
      {"nimble::adaptive_avg_pool2d"});
  for (const bool keep : {true, false}) {
    expect_operators(
        [=](const Tensors& in) -> Tensors {
          return {in[0].mean({2, 3}, keep).sigmoid()};
        },
        {"nimble::adaptive_avg_pool2d"});
  }
}

TEST_F(PoolingRewrite, AMaximumTakesInTheActivationBeforeItWhereThatNeverDecreases) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::max_pool2d((in[0] * 2).relu(), 3, 2, 1) + 1};
  };
  EXPECT_EQ(drawn(record(image_, function)), R"(
%0 = mul(input0)
%1 = relu(%0)
%2, %3 = max_pool2d_with_indices(%1)
%4 = add(%2)
return %4
)");
  const Forced result = forced(function, image_, kPooling);
  EXPECT_EQ(drawn(result.program), R"(
%0 = mul(input0)
%1 = nimble::max_pool2d(%0)
%2 = add(%1)
return %2
)");
  EXPECT_EQ(value_argument(result.program.tasks[1], 6).toStringRef(), "relu");
  expect_same(result.program, function, image_);
}

TEST_F(PoolingRewrite, OneOfTwoActivationsAroundAMaximum) {
  expect_operators(
      [](const Tensors& in) -> Tensors { return {at::silu(at::max_pool2d(at::sigmoid(in[0]), 3))}; },
      {"nimble::max_pool2d", "aten::silu"});
}

TEST_F(PoolingRewrite, NotAnActivationBeforeAnAverage) {
  expect_operators([](const Tensors& in) -> Tensors { return {at::avg_pool2d(in[0].relu(), 3)}; },
                   {"aten::relu", "nimble::avg_pool2d"});
  expect_operators(
      [](const Tensors& in) -> Tensors {
        return {in[0].relu().mean({2, 3})};
      },
      {"aten::relu", "nimble::adaptive_avg_pool2d"});
}

TEST_F(PoolingRewrite, NotAnActivationBeforeAMaximumThatDecreasesSomewhere) {
  expect_operators([](const Tensors& in) -> Tensors { return {at::max_pool2d(at::silu(in[0]), 3)}; },
                   {"aten::silu", "nimble::max_pool2d"});
}

// Of an image of one pixel such a window sees only what is around it, and its maximum is minus infinity.
TEST_F(PoolingRewrite, NotAnActivationBeforeAWindowThatMayMissTheImage) {
  const Tensors pixel = {torch::randn({2, 8, 1, 1}).contiguous(at::MemoryFormat::ChannelsLast)};
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::max_pool2d(in[0].relu(), 2, 1, 1, 2)};
  };
  const Forced result = forced(function, pixel, kPooling);
  EXPECT_EQ(operators(result.program), (std::vector<std::string>{"aten::relu", "nimble::max_pool2d"}));
}

TEST_F(PoolingRewrite, NotAnActivationThatOthersSee) {
  expect_operators(  // what the activation made
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].relu();
        return {at::max_pool2d(x, 3), x.slice(1, 0, 4) + 1};
      },
      {"aten::relu", "nimble::max_pool2d", "aten::add"});
  expect_operators(  // what it is given
      [](const Tensors& in) -> Tensors {
        const at::Tensor pooled = at::avg_pool2d(in[0], 3);
        return {pooled.relu(), pooled + 1};
      },
      {"nimble::avg_pool2d", "aten::relu", "aten::add"});
  expect_operators(  // a result of the program
      [](const Tensors& in) -> Tensors {
        const at::Tensor pooled = at::avg_pool2d(in[0], 3);
        return {pooled, pooled.relu()};
      },
      {"nimble::avg_pool2d", "aten::relu"});
}

TEST_F(PoolingRewrite, NotAnActivationWhoseArgumentChangesBeforeTheMaximum) {
  expect_operators(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0] * 2;
        const at::Tensor positive = x.relu();
        x.select(0, 0).zero_();
        return {at::max_pool2d(positive, 3), x + 1};
      },
      {"aten::mul", "aten::relu", "aten::zero_", "nimble::max_pool2d", "aten::add"});
}

TEST_F(PoolingRewrite, NotOneThatWritesToATensorItWasGiven) {
  const auto into_half = [](const std::function<void(at::Tensor & half)>& pool) -> Tensors {
    const at::Tensor both = torch::zeros({2, 16, 3, 3});
    at::Tensor half = both.slice(1, 0, 8);
    pool(half);
    return {both + 1};
  };
  expect_operators(
      [&](const Tensors& in) {
        return into_half([&](at::Tensor& half) { at::avg_pool2d_out(half, in[0], 3); });
      },
      {"aten::zeros", "aten::avg_pool2d", "aten::add"});
  expect_operators(
      [&](const Tensors& in) {
        return into_half([&](at::Tensor& half) { at::_adaptive_avg_pool2d_out(half, in[0], {3, 3}); });
      },
      {"aten::zeros", "aten::_adaptive_avg_pool2d", "aten::add"});
}

TEST_F(PoolingRewrite, NotAnActivationThatWritesToATensorItWasGiven) {
  expect_operators(
      [](const Tensors& in) -> Tensors {
        const at::Tensor both = torch::zeros({2, 16, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
        at::Tensor half = both.slice(1, 0, 8);
        at::silu_out(half, at::avg_pool2d(in[0], 3));
        return {both + 1};
      },
      {"aten::clone", "nimble::avg_pool2d", "aten::silu", "aten::add"});
}

TEST_F(PoolingRewrite, NotAnActivationBehindAPoolingThatIsWrittenInBetween) {
  expect_operators(
      [](const Tensors& in) -> Tensors {
        const at::Tensor pooled = at::avg_pool2d(in[0], 3);
        pooled.select(0, 0).zero_();
        return {pooled.relu()};
      },
      {"nimble::avg_pool2d", "aten::zero_", "aten::relu"});
}

TEST_F(PoolingRewrite, NotAnActivationOfAPartOfWhatIsPooled) {
  expect_operators(
      [](const Tensors& in) -> Tensors { return {at::avg_pool2d(in[0], 3).slice(1, 0, 4).relu() + 1}; },
      {"nimble::avg_pool2d", "aten::relu", "aten::add"});
  expect_operators(
      [](const Tensors& in) -> Tensors { return {at::max_pool2d(in[0].relu().slice(1, 0, 4), 3) + 1}; },
      {"aten::relu", "nimble::max_pool2d", "aten::add"});
}

TEST_F(PoolingRewrite, NotAnActivationThatIsReturned) {
  expect_operators(
      [](const Tensors& in) -> Tensors {
        const at::Tensor positive = in[0].relu();
        return {at::max_pool2d(positive, 3), positive};
      },
      {"aten::relu", "nimble::max_pool2d"});
}

TEST_F(PoolingRewrite, NotWhereItWasMeasuredToBeSlower) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::max_pool2d(in[0].relu(), 3), at::silu(at::avg_pool2d(in[0], 3))};
  };
  EXPECT_EQ(operators(forced(function, image_, kPooling, {}, measured(2, 1)).program),
            (std::vector<std::string>{"aten::relu", "aten::max_pool2d_with_indices", "aten::avg_pool2d",
                                      "aten::silu"}));
  EXPECT_EQ(operators(forced(function, image_, kPooling, {}, measured(1, 2)).program),
            (std::vector<std::string>{"nimble::max_pool2d", "nimble::avg_pool2d"}));
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
        switch (random() % 11) {
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
          case 8:
            images.push_back(at::max_pool2d(is_true() ? at::relu(x) : at::silu(x), size, stride, padding));
            break;
          case 9:
            images.push_back(at::hardswish(at::avg_pool2d(x, size, stride, padding)));
            break;
          case 10:
            images.push_back(at::sigmoid(images.back()));
            break;
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
