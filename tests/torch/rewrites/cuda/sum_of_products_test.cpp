// What sums of products become.
#include <random>

#include "nimble/core/reachability.h"
#include "nimble/torch/dependencies.h"
#include "sum_of_products.h"

namespace nimble {
namespace {

//   x ─▶ 3×3 ─▶ 1×1 w ─┐                  x ─▶ 3×3 ─▶ %0[:, :16]
//                      + ─▶ exp    ──▶                          1×1 [w, v] ─▶ exp
//   y ─▶ 3×3 ─▶ 1×1 v ─┘                  y ─▶ 3×3 ─▶ %0[:, 16:]
TEST_F(SumOfProducts, BecomesOneOverTheChannelsOfBoth) {
  const Forced result = summed(two());
  EXPECT_EQ(result.sites,
            std::vector<std::string>{"nimble::pointwise_convolution#4 and nimble::pointwise_convolution#5: "
                                     "matrix_convolution 0"});
  expect_drawn(two(), R"(
%0 = nimble::depthwise_convolution(input0, derived0, %0)
%0 = nimble::depthwise_convolution(input1, derived1, %0)
%1 = nimble::matrix_convolution(%0, derived2, derived3)
%2 = exp(%1)
return %2
)");
}

TEST_F(SumOfProducts, TheInputsAreStillMadeBesideOneAnother) {
  const TaskGraph graph = dependencies(summed(two()).program);
  const Reachability order(graph);
  EXPECT_FALSE(order.happens_before(TaskId{0}, TaskId{1}));
  EXPECT_TRUE(order.happens_before(TaskId{0}, TaskId{2}));
  EXPECT_TRUE(order.happens_before(TaskId{1}, TaskId{2}));
}

//   x ─▶ 3×3 ─▶ 1×1 ─┐
//   y ─▶ 3×3 ─▶ 1×1 ─+─┐               three slices of %0 ─▶ 1×1 ─▶ exp
//   z ─▶ 3×3 ─▶ 1×1 ───+─▶ exp   ──▶
TEST_F(SumOfProducts, OfThreeIsOneToo) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor first = sum(in);
        return {(first + conv(depthwise(in[0] * in[1]), u_, bias_u_)).exp()};
      },
      R"(
%0 = nimble::depthwise_convolution(input0, derived0, %0)
%0 = nimble::depthwise_convolution(input1, derived1, %0)
%1 = mul(input0, input1)
%0 = nimble::depthwise_convolution(%1, derived2, %0)
%2 = nimble::matrix_convolution(%0, derived3, derived4)
%3 = exp(%2)
return %3
)");
}

//   x ─▶ relu ─▶ 3×3 ─▶ 1×1 ─▶ norm ─┐
//                                    + ─▶ relu      as one block of a cell of NASNet
//   y ─▶ relu ─▶ 3×3 ─▶ 1×1 ─▶ norm ─┘
TEST_F(SumOfProducts, ActivationsStayBeforeTheInputsAndBehindTheSum) {
  const at::Tensor mean = torch::randn({8}), variance = torch::rand({8}) + 0.5, scale = torch::randn({8}),
                   shift = torch::randn({8});
  const Function function = [&](const Tensors& in) -> Tensors {
    const auto half = [&](const at::Tensor& x, const at::Tensor& weight) {
      return at::batch_norm(conv(depthwise(x.relu()), weight), scale, shift, mean, variance, false, 0.1, 1e-3,
                            false);
    };
    const at::Tensor first = half(in[0] * in[1], w_);
    return {(first + half(in[1], v_)).relu().sum()};
  };
  expect_drawn(function, R"(
%0 = mul(input0, input1)
%1 = nimble::depthwise_convolution(%0, derived0, %1)
%1 = nimble::depthwise_convolution(input1, derived1, %1)
%2 = nimble::matrix_convolution(%1, derived2, derived3)
%3 = sum(%2)
return %3
)");
}

TEST_F(SumOfProducts, WhatElseIsAddedStaysATermOfIt) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor term = in[0].slice(1, 0, 8).sin();
        const at::Tensor first = term + conv(depthwise(in[0]), w_, bias_w_);
        return {(first + conv(depthwise(in[1]), v_, bias_v_)).relu().exp()};
      },
      R"(
%0 = sin(input0)
%1 = nimble::depthwise_convolution(input0, derived0, %1)
%1 = nimble::depthwise_convolution(input1, derived1, %1)
%2 = nimble::matrix_convolution(%1, derived2, derived3, %0)
%3 = exp(%2)
return %3
)");
}

TEST_F(SumOfProducts, NotWithTwoOtherTermsForWhichThereIsNoRoom) {
  const auto function = [&](bool two) -> Function {
    return [=, this](const Tensors& in) -> Tensors {
      const at::Tensor term = in[0].slice(1, 0, 8).sin(), other = in[1].slice(1, 0, 8).sin();
      const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_) + term;
      const at::Tensor second = conv(depthwise(in[1]), v_, bias_v_);
      return {first + (two ? second + other : second)};
    };
  };
  EXPECT_EQ(times_fired(function(false), Times{}.context()), 1u);
  expect_untouched(function(true));
}

TEST_F(SumOfProducts, AnyOfThemMayHaveABias) {
  const std::vector<std::pair<Bias, Bias>> all = {{{}, {}}, {bias_w_, {}}, {{}, bias_v_}, {bias_w_, bias_v_}};
  for (const auto& [first, second] : all) {
    const Function function = [&](const Tensors& in) -> Tensors {
      return {(conv(depthwise(in[0]), w_, first) + conv(depthwise(in[1]), v_, second)).exp()};
    };
    const Forced result = summed(function);
    ASSERT_EQ(result.sites.size(), 1u);
    const Task& product = result.program.tasks[2];
    EXPECT_EQ(tensor_argument(product, 2) != nullptr, first || second);
    expect_same(result.program, function, images_);
  }
}

TEST_F(SumOfProducts, ASumThatIsATaskOfItsOwnGoesToo) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(in[0].sin(), w_, bias_w_);
    return {(first + conv(in[1].cos(), v_, bias_v_)).exp()};
  };
  const Times times = {.whole = 22, .side_by_side = 30};  // of the products 10 each, and 5 of the sum
  const Forced result = forced(function, images_, kSumOfProducts, {&kChannelsLast}, times.context());
  EXPECT_EQ(result.sites, std::vector<std::string>{"convolution#1 and convolution#3: matrix_convolution 0"});
  EXPECT_EQ(drawn(result.program), R"(
%0 = sin(input0, %0)
%0 = cos(input1, %0)
%1 = nimble::matrix_convolution(%0, derived0, derived1)
%2 = exp(%1)
return %2
)");
  expect_same(result.program, function, images_);
}

TEST_F(SumOfProducts, OfInputsThatAnyKernelMakesWhichWritesSlices) {
  const at::Tensor square = weights(16);
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> makers = {
      [](const at::Tensor& x) { return at::max_pool2d(x, 3, 1, 1); },
      [](const at::Tensor& x) { return at::avg_pool2d(x, 3, 1, 1); },
      [&](const at::Tensor& x) { return conv(x, square).relu(); },
      [](const at::Tensor& x) { return x * x; },
      [](const at::Tensor& x) { return (x * x).sigmoid() * x; },
  };
  for (const auto& make : makers) {
    const Function function = [&](const Tensors& in) -> Tensors {
      return {(conv(depthwise(in[0]), w_, bias_w_) + conv(make(in[1]), v_, bias_v_)).exp()};
    };
    const Forced result = summed(function);
    EXPECT_EQ(result.sites.size(), 1u) << drawn(result.program);
    EXPECT_EQ(result.program.tasks.size(), 4u) << drawn(result.program);
    expect_same(result.program, function, images_);
  }
}

TEST_F(SumOfProducts, OfInputsWithDifferentlyManyChannels) {
  const at::Tensor narrow = weights(8, 3);
  const Tensors images = {image(), image(3)};
  const Function function = [&](const Tensors& in) -> Tensors {
    return {(conv(in[1].sin(), narrow, bias_v_) + conv(depthwise(in[0]), w_)).exp()};
  };
  const Forced result = forced(function, images, kSumOfProducts, kBefore, Times{}.context());
  EXPECT_EQ(result.sites.size(), 1u) << drawn(result.program);
  expect_same(result.program, function, images);
}

TEST_F(SumOfProducts, OfSeveralImagesOnePixelOrOneFilter) {
  const auto expect_same_of = [&](at::IntArrayRef sizes, std::int64_t filters, std::size_t fires) {
    const auto images = [&] { return torch::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast); };
    const at::Tensor w = weights(filters), v = weights(filters);
    const Function function = [&](const Tensors& in) -> Tensors {
      return {conv(in[0].sin(), w) + conv(in[1].cos(), v)};
    };
    const Tensors inputs = {images(), images()};
    const Forced result = forced(function, inputs, kSumOfProducts, kBefore, Times{}.context());
    EXPECT_EQ(result.sites.size(), fires) << sizes << drawn(result.program);
    expect_same(result.program, function, inputs);
  };
  expect_same_of({3, 16, 6, 5}, 8, 1);
  expect_same_of({1, 16, 1, 5}, 8, 1);
  // PyTorch's own kernels do not lay out the results of these as ours do.
  expect_same_of({3, 16, 1, 1}, 8, 0);
  expect_same_of({1, 16, 6, 5}, 1, 0);
}

TEST_F(SumOfProducts, FollowsItsWeights) {
  const at::Tensor weight = w_.clone(), bias = bias_v_.clone();
  const Function function = [&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), weight, bias_w_) + conv(depthwise(in[1]), v_, bias)).exp()};
  };
  const Forced result = summed(function);
  ASSERT_EQ(result.sites.size(), 1u);
  weight.mul_(3);
  bias.sub_(1);
  derive_all(result.program);
  expect_same(result.program, function, images_);
}

TEST_F(SumOfProducts, MayBeAResultOfTheProgram) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {sum(in)}; },
               R"(
%0 = nimble::depthwise_convolution(input0, derived0, %0)
%0 = nimble::depthwise_convolution(input1, derived1, %0)
%1 = nimble::matrix_convolution(%0, derived2, derived3)
return %1
)");
}

//   sum ─┐                       [w, v] → %1[:, :8]
//        cat ─ exp   ──▶                             exp
//   mul ─┘                       mul ───→ %1[:, 8:]
TEST_F(SumOfProducts, MayBeAPartOfAConcatenationWrittenInPlace) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {at::cat({sum(in), in[0] * in[1]}, 1).exp()};
  };
  const Forced result = with_cat(function);
  EXPECT_EQ(drawn(result.program), R"(
%0 = nimble::depthwise_convolution(input0, derived0, %0)
%0 = nimble::depthwise_convolution(input1, derived1, %0)
%1 = nimble::matrix_convolution(%0, derived2, derived3, %1)
%1 = mul(input0, input1, %1)
%2 = exp(%1)
return %2
)");
  expect_same(result.program, function, images_);
}

//   sin ─▶ 1×1 ─┐
//               + ─▶ 1×1 ─┐              the first sum goes to a slice, so it stays one
//   cos ─▶ 1×1 ─┘         + ─▶ exp
//          mul ─▶ 1×1 ────┘
TEST_F(SumOfProducts, OfTwoInARowTheLastIsOne) {
  const at::Tensor square = weights(16), other = weights(16);
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor inner = conv(in[0].sin(), square) + conv(in[1].cos(), other);
    const at::Tensor first = conv(inner, w_);
    return {(first + conv(in[0] * in[1], v_)).exp()};
  };
  // A convolution makes the first sum, or a task of its own.
  for (const auto& before : {kBefore, std::vector<const Rewrite*>{&kChannelsLast}}) {
    const Forced result = forced(function, images_, kSumOfProducts, before, Times{}.context());
    EXPECT_EQ(result.sites.size(), 1u) << drawn(result.program);
    EXPECT_EQ(channels_into(result.program.tasks.end()[-2]), 32) << drawn(result.program);
    expect_same(result.program, function, images_);
  }
}

// Networks of a few tensors of one size: products of what others made, sums of those, and what fits or does
// not fit in between.
class RandomNetwork {
 public:
  explicit RandomNetwork(unsigned seed) : seed_(seed) {
    torch::manual_seed(seed);
    for (int i = 0; i < 4; ++i) {
      weights_.push_back(torch::randn({16, 16, 1, 1}) / 4);
      biases_.push_back(torch::randn({16}));
      filters_.push_back(torch::randn({16, 1, 3, 3}) / 3);
    }
  }

  Tensors operator()(const Tensors& in) const {
    std::mt19937 random(seed_);
    Tensors values = in;
    const auto pick = [&](const Tensors& from) { return from[random() % from.size()].to(in[0].dtype()); };
    const auto made = [&](const at::Tensor& x) {
      switch (random() % 5) {
        case 0:
          return x.relu().sin();
        case 1:
          return at::max_pool2d(x, 3, 1, 1);
        default:
          return at::conv2d(x, pick(filters_), {}, 1, 1, 1, 16);
      }
    };
    const auto product = [&] {
      const at::Tensor x = random() % 6 ? made(pick(values)) : pick(values);
      if (random() % 5 == 0) values.push_back(x);
      return random() % 2 ? at::conv2d(x, pick(weights_)) : at::conv2d(x, pick(weights_), pick(biases_));
    };
    for (int i = 0; i < 5; ++i) {
      at::Tensor sum = random() % 3 ? product() : pick(values);
      for (auto more = 1 + random() % 3; more > 0; --more) {
        const at::Tensor term = random() % 6 ? product() : pick(values);
        if (random() % 8 == 0) values.push_back(term);
        sum = random() % 8 ? sum + term : (sum + term).relu();
      }
      values.push_back(random() % 2 ? sum.tanh() : sum.relu() / 4);
      if (random() % 6 == 0) values.back().mul_(0.5);
    }
    return {values.back() * 1, values[values.size() / 2] * 1, at::cat({pick(values), pick(values)}, 1)};
  }

 private:
  unsigned seed_;
  Tensors weights_, biases_, filters_;
};

TEST_F(SumOfProducts, RandomNetworksAreAsNearToFloat64AsEager) {
  std::size_t fired = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const RandomNetwork network(seed);
    const Forced result = summed(network);
    fired += result.sites.size();
    const Tensors fresh = {image(), image()},
                  in_double = {fresh[0].to(at::kDouble), fresh[1].to(at::kDouble)};
    const Tensors eager = network(fresh), exact = network(in_double);
    for (const Program& program : {result.program, with_cat(network).program}) {
      const Tensors given = run(program, fresh);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const auto error = [&](const at::Tensor& x) { return (x - exact[i]).abs().max().item<double>(); };
        const double roundings = 16 * 1.2e-7 * exact[i].abs().max().item<double>();
        EXPECT_LE(error(given[i]), std::max(2 * error(eager[i]), roundings)) << drawn(program);
      }
    }
  }
  EXPECT_GT(fired, 60u);
}

}  // namespace
}  // namespace nimble
