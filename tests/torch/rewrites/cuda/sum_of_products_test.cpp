#include <random>

#include "forced.h"
#include "nimble/core/reachability.h"
#include "nimble/torch/dependencies.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

using Bias = std::optional<at::Tensor>;

bool is_product(const Task& task) {
  return is_call_of(task, "nimble::matrix_convolution") ||
         is_call_of(task, "nimble::pointwise_convolution") || is_call_of(task, "aten::convolution");
}

std::int64_t channels_into(const Task& product) { return tensor_argument(product, 0)->sizes[1]; }

// As if these had been measured.
struct Times {
  Nanoseconds product = 10;  // each, but those of more channels than the images have
  Nanoseconds whole = 10;
  Nanoseconds side_by_side = 20;
  Nanoseconds others = 5, into_a_slice = 5;

  Nanoseconds of(const Task& task) const {
    if (task.op.operator_name().overload_name == "out") return into_a_slice;
    return !is_product(task) ? others : channels_into(task) > 16 ? whole : product;
  }
  RewriteContext context() const {
    const auto alone = [*this](std::span<const Buffer>, std::span<const Task> tasks) {
      Nanoseconds sum = 0;
      for (const Task& task : tasks) sum += of(task);
      return sum;
    };
    const auto beside = [*this](std::span<const Buffer>, std::span<const Task>) { return side_by_side; };
    return {.measure = alone, .measure_side_by_side = beside, .measure_seconds = 100};
  }
};

class SumOfProducts : public RewriteTest {
 protected:
  const std::vector<const Rewrite*> kBefore = {&kFoldBatchNorm, &kChannelsLast, &kFuseConvolution, &kPooling,
                                               &kFusePointwise};

  Forced summed(const Function& function, const RewriteContext& context = Times{}.context()) const {
    return forced(function, images_, kSumOfProducts, kBefore, context);
  }
  // And then what is concatenated is written by address.
  Forced with_cat(const Function& function) const {
    auto before = kBefore;
    before.push_back(&kSumOfProducts);
    return forced(function, images_, kCatByAddress, before, Times{}.context());
  }
  void expect_drawn(const Function& function, const std::string& picture) const {
    const Forced result = summed(function);
    EXPECT_EQ(drawn(result.program), picture);
    expect_same(result.program, function, images_);
  }
  void expect_untouched(const Function& function) const {
    const Forced result = summed(function);
    EXPECT_TRUE(result.sites.empty()) << result.sites.front() << drawn(result.program);
    expect_same(result.program, function, images_);
  }
  std::size_t times_fired(const Function& function, const RewriteContext& context) const {
    return summed(function, context).sites.size();
  }

  static at::Tensor image(std::int64_t channels = 16) {
    return torch::randn({1, channels, 6, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  }
  static at::Tensor weights(std::int64_t filters = 8, std::int64_t channels = 16, std::int64_t size = 1) {
    return torch::randn({filters, channels, size, size}) / static_cast<double>(4 * size);
  }
  static at::Tensor conv(const at::Tensor& x, const at::Tensor& w, const Bias& bias = {},
                         std::int64_t stride = 1, std::int64_t padding = 0, std::int64_t groups = 1) {
    return at::conv2d(x, w, bias, {stride, stride}, {padding, padding}, {1, 1}, groups);
  }
  at::Tensor depthwise(const at::Tensor& x) const { return conv(x, filters_, {}, 1, 1, /*groups=*/16); }

  // As somebody might call it, with any term, weight and bias.
  static at::Tensor conv_and_sum(const at::Tensor& x, const at::Tensor& w, const at::Tensor& term,
                                 const Bias& bias = {}) {
    static const auto op = find_operator("nimble::pointwise_convolution")
                               .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const Bias&,
                                                 const Bias&, c10::string_view, std::int64_t)>();
    return op.call(x, w, bias, term, "none", 0);
  }
  at::Tensor sum(const Tensors& in) const {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_);
    return first + conv(depthwise(in[1]), v_, bias_v_);
  }

  const Tensors images_ = {image(), image()};
  const at::Tensor w_ = weights(), v_ = weights(), u_ = weights(), bias_w_ = torch::randn({8}),
                   bias_v_ = torch::randn({8}), bias_u_ = torch::randn({8}),
                   filters_ = torch::randn({16, 1, 3, 3}) / 3;

  Function two() const {
    return [this](const Tensors& in) -> Tensors { return {sum(in).exp()}; };
  }
};

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

TEST_F(SumOfProducts, NotIfASummandIsReadByAnother) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_);
    return {(first + conv(depthwise(in[1]), v_, bias_v_)).exp(), first.sin()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_);
    return {first + first};
  });
}

TEST_F(SumOfProducts, NotIfASummandIsAResultOfTheProgram) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_), second = conv(depthwise(in[1]), v_);
    return {(first + second).exp(), first};
  });
}

TEST_F(SumOfProducts, NotIfAnInputIsReadByAnotherOrIsAResult) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = depthwise(in[0]);
    return {(conv(x, w_) + conv(depthwise(in[1]), v_)).exp(), x.sin()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = depthwise(in[0]);
    return {(conv(x, w_) + conv(depthwise(in[1]), v_)).exp(), x};
  });
  const at::Tensor square = weights(16), other = weights(16);
  expect_untouched([&](const Tensors& in) -> Tensors {  // it is added as well
    const at::Tensor x = depthwise(in[1]);
    return {(conv(depthwise(in[0]), square) + (x + conv(x, other))).exp()};
  });
}

TEST_F(SumOfProducts, NotOfTheSameInput) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = depthwise(in[0]);
    return {(conv(x, w_) + conv(x, v_)).exp()};
  });
}

TEST_F(SumOfProducts, NotOfAnInputThatNobodyCanWriteToASlice) {
  const at::Tensor of_two_groups = weights(16, 8, 3), weight = image();
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> makers = {
      [](const at::Tensor& x) { return x; },
      [](const at::Tensor& x) { return at::softmax(x, 1); },
      [&](const at::Tensor& x) { return conv(x, of_two_groups, {}, 1, 1, /*groups=*/2); },
      [](const at::Tensor& x) {
        return at::cat({x.sin(), x.cos()}, 1).slice(1, 8, 24);
      },
      [&](const at::Tensor&) { return weight.sin(); },  // made once, before the program runs
  };
  for (const auto& make : makers) {
    expect_untouched([&](const Tensors& in) -> Tensors {
      return {(conv(depthwise(in[0]), w_, bias_w_) + conv(make(in[1]), v_, bias_v_)).exp()};
    });
  }
}

TEST_F(SumOfProducts, NotOfSomeChannelsOfWhatWasMade) {
  const at::Tensor narrow = weights(8, 8);
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), w_) + conv(in[1].sin().slice(1, 0, 8), narrow)).exp()};
  });
}

TEST_F(SumOfProducts, NotIfAnInputIsChangedInPlace) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[1].sin();
    const at::Tensor sum = conv(depthwise(in[0]), w_) + conv(x, v_);
    x.select(1, 0).zero_();
    return {sum.exp()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[1].sin();
    x.select(1, 0).zero_();
    return {(conv(depthwise(in[0]), w_) + conv(x, v_)).exp()};
  });
}

TEST_F(SumOfProducts, NotIfWhatElseIsAddedIsChangedInBetween) {
  const auto function = [&](bool changes) -> Function {
    return [=, this](const Tensors& in) -> Tensors {
      const at::Tensor term = in[0].slice(1, 0, 8).sin();
      const at::Tensor first = conv_and_sum(depthwise(in[0]), w_, term);
      if (changes) term.select(1, 0).zero_();
      return {conv_and_sum(depthwise(in[1]), v_, first).exp()};
    };
  };
  EXPECT_EQ(times_fired(function(false), Times{}.context()), 1u);
  expect_untouched(function(true));
}

TEST_F(SumOfProducts, NotWithAnActivationBeforeTheSum) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), w_, bias_w_).relu() + conv(depthwise(in[1]), v_, bias_v_)).exp()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), w_).sigmoid() + conv(depthwise(in[1]), v_).sigmoid()).exp()};
  });
}

TEST_F(SumOfProducts, NotWhereOneCountsMoreThanTheOtherOrIsTakenAway) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {at::add(conv(depthwise(in[0]), w_), conv(depthwise(in[1]), v_), 2).exp()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), w_) - conv(depthwise(in[1]), v_)).exp()};
  });
}

TEST_F(SumOfProducts, NotOfDifferentPixels) {
  const auto pixel = [&](const Tensors& in) {  // stands beside each of the others
    return conv(depthwise(in[1]).slice(2, 0, 1).slice(3, 0, 1).sin(), v_);
  };
  expect_untouched(
      [&](const Tensors& in) -> Tensors { return {(conv(depthwise(in[0]), w_) + pixel(in)).exp()}; });
  expect_untouched(
      [&](const Tensors& in) -> Tensors { return {conv_and_sum(depthwise(in[0]), w_, pixel(in)).exp()}; });
}

TEST_F(SumOfProducts, NotWithLargerFiltersStridesPaddingOrGroups) {
  const at::Tensor larger = weights(8, 16, 3), grouped = weights(8, 8);
  const auto both = [&](const std::function<at::Tensor(const at::Tensor&)>& product) {
    expect_untouched([&](const Tensors& in) -> Tensors {
      return {(product(depthwise(in[0])) + product(depthwise(in[1]))).exp()};
    });
  };
  both([&](const at::Tensor& x) { return conv(x, larger, {}, 1, 1); });
  both([&](const at::Tensor& x) { return conv(x, w_, {}, 2); });
  both([&](const at::Tensor& x) { return conv(x, w_, {}, 1, 1); });
  both([&](const at::Tensor& x) { return conv(x, grouped, {}, 1, 0, /*groups=*/2); });
  const at::Tensor turned = torch::randn({16, 8, 1, 1}) / 4;
  both([&](const at::Tensor& x) { return at::conv_transpose2d(x, turned); });
}

TEST_F(SumOfProducts, NotWithWeightsThatTheProgramMakesOrWrites) {
  const auto function = [&](bool makes_weight, bool makes_bias) -> Function {
    return [=, this](const Tensors& in) -> Tensors {
      const at::Tensor w = makes_weight ? w_ * in[0].mean() : w_,
                       bias = makes_bias ? bias_w_ * in[0].mean() : bias_w_;
      return {conv_and_sum(depthwise(in[0]), w, conv(depthwise(in[1]), v_), bias).exp()};
    };
  };
  EXPECT_EQ(times_fired(function(false, false), Times{}.context()), 1u);
  expect_untouched(function(true, false));
  expect_untouched(function(false, true));
  const at::Tensor weight = w_.clone();
  const Function writes = [&](const Tensors& in) -> Tensors {
    const at::Tensor sum = conv(depthwise(in[0]), weight) + conv(depthwise(in[1]), v_);
    weight.add_(1e-3);
    return {sum.exp()};
  };
  EXPECT_EQ(times_fired(writes, Times{}.context()), 0u);
}

TEST_F(SumOfProducts, NotWhereChannelsOfAPixelLieApart) {
  const Tensors contiguous = {images_[0].contiguous(), images_[1].contiguous()};
  const Function function = [&](const Tensors& in) -> Tensors {
    return {(conv(in[0].sin(), w_) + conv(in[1].cos(), v_)).exp()};
  };
  EXPECT_EQ(forced(function, images_, kSumOfProducts, {}, Times{}.context()).sites.size(), 1u);
  EXPECT_EQ(forced(function, contiguous, kSumOfProducts, {}, Times{}.context()).sites.size(), 0u);
}

TEST_F(SumOfProducts, InSinglePrecisionOnlyWhereTF32IsAllowed) {
  struct Disallow {
    bool before = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
    Disallow() { at::globalContext().setAllowTF32CuDNN(false); }
    ~Disallow() { at::globalContext().setAllowTF32CuDNN(before); }
  };
  const Disallow disallow;
  expect_untouched(two());
  const auto half = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16); };
  const at::Tensor w = half(w_), v = half(v_), bias_w = half(bias_w_), bias_v = half(bias_v_);
  const Function in_half = [&](const Tensors& in) -> Tensors {
    return {(conv(in[0].sin(), w, bias_w) + conv(in[1].cos(), v, bias_v)).exp()};
  };
  const Tensors images = {half(images_[0]), half(images_[1])};
  const Forced result = forced(in_half, images, kSumOfProducts, kBefore, Times{}.context());
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, in_half, images, 0.1);
}

TEST_F(SumOfProducts, NotAcrossPartsOfTheProgram) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_);
    return {(first + conv(depthwise(in[1].sin()), v_, bias_v_)).exp()};
  };
  const Program apart =
      forced(function, images_, kFuseConvolution, {&kChannelsLast}, Times{}.context()).program;
  EXPECT_EQ(operators(apart),
            (std::vector<std::string>{"nimble::depthwise_convolution", "nimble::pointwise_convolution",
                                      "aten::sin", "nimble::depthwise_convolution",
                                      "nimble::pointwise_convolution", "aten::exp"}));
  for (std::size_t cut = 1; cut < apart.tasks.size(); ++cut) {
    Program in_parts = apart;
    for (std::size_t t = cut; t < in_parts.tasks.size(); ++t) in_parts.tasks[t].part = 1;
    const std::size_t fired = kSumOfProducts.apply(in_parts, Times{}.context()).sites.size();
    EXPECT_EQ(fired, cut == 5 ? 1u : 0u) << "between " << cut - 1 << " and " << cut;
  }
}

TEST_F(SumOfProducts, NotInTraining) {
  const Program program = record(images_, [&](const Tensors& in) -> Tensors {
    return {(conv(in[0].sin(), w_) + conv(in[1].cos(), v_)).exp()};
  });
  RewriteContext like_a_gpu = Times{}.context();
  like_a_gpu.device = c10::Device(c10::kCUDA, 0);
  const Rewrite* const rewrites[] = {&kSumOfProducts};
  EXPECT_TRUE(kSumOfProducts.is_for(like_a_gpu.device));
  EXPECT_FALSE(kSumOfProducts.is_for(c10::kCPU));
  EXPECT_EQ(kSumOfProducts.apply(program, like_a_gpu).sites.size(), 1u);
  like_a_gpu.trains = true;
  EXPECT_TRUE(apply_rewrites(program, rewrites, images_, like_a_gpu).reports.empty());
}

TEST_F(SumOfProducts, OnlyWhereOneIsClearlyFasterThanOneAfterTheOther) {
  EXPECT_EQ(times_fired(two(), Times{.whole = 12, .side_by_side = 13}.context()), 1u);
  EXPECT_EQ(times_fired(two(), Times{.whole = 12, .side_by_side = 12}.context()), 0u);
  EXPECT_EQ(times_fired(two(), Times{.whole = 13, .side_by_side = 12}.context()), 0u);
}

TEST_F(SumOfProducts, SaysInOrderWhereAndWhatItGained) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor first = sum(in).exp();
    return {first * sum({in[0].sin(), in[1].cos()}).exp()};
  };
  const Program apart =
      forced(function, images_, kFuseConvolution, {&kChannelsLast}, Times{}.context()).program;
  const Rewritten result = kSumOfProducts.apply(apart, Times{}.context());
  ASSERT_EQ(result.sites.size(), 2u);
  EXPECT_TRUE(result.sites[0].starts_with("nimble::pointwise_convolution#2 ")) << result.sites[0];
  EXPECT_TRUE(result.sites[1].starts_with("nimble::pointwise_convolution#9 ")) << result.sites[1];
  EXPECT_EQ(result.gained, 2 * (5 + 5 + 10 + 10 - (5 + 5 + 10)));
}

TEST_F(SumOfProducts, NotWhereWritingToSlicesCostsWhatIsGained) {
  EXPECT_EQ(times_fired(two(), Times{.whole = 12, .others = 5, .into_a_slice = 8}.context()), 1u);
  EXPECT_EQ(times_fired(two(), Times{.whole = 12, .others = 5, .into_a_slice = 9}.context()), 0u);
}

//   x ─▶ 3×3 ─▶ 1×1 w ─┐      of 20: over before the other can begin
//   y ─▶ … ─▶ 3×3 ─▶ 1×1 v    of 5: all that is waited for
TEST_F(SumOfProducts, NotWhereTheOneWithTheLatestInputWouldEndMuchSoonerAlone) {
  const auto with_times = [&](Nanoseconds early, Nanoseconds late, std::int64_t steps) {
    const at::Tensor narrow = weights(8, 3);
    const Tensors images = {image(), image(3)};
    const Function function = [&](const Tensors& in) -> Tensors {
      at::Tensor y = in[1];
      for (std::int64_t i = 0; i < steps; ++i) y = at::max_pool2d(y, 3, 1, 1);
      return {(conv(depthwise(in[0]), w_) + conv(y, narrow)).exp()};
    };
    RewriteContext context = Times{.side_by_side = 30}.context();
    context.measure = [=](std::span<const Buffer>, std::span<const Task> tasks) {
      Nanoseconds sum = 0;
      for (const Task& task : tasks) {
        const std::int64_t channels = is_product(task) ? channels_into(task) : 0;
        sum += channels == 0 ? 1 : channels == 3 ? late : channels == 16 ? early : 20;
      }
      return sum;
    };
    return forced(function, images, kSumOfProducts, kBefore, context).sites.size();
  };
  EXPECT_EQ(with_times(20, 5, 3), 0u);
  EXPECT_EQ(with_times(20, 5, 1), 1u);  // both are there at the same time
  EXPECT_EQ(with_times(10, 15, 3), 1u);
}

TEST_F(SumOfProducts, ByTheKernelThatIsFastest) {
  RewriteContext context = Times{}.context();
  context.measure = [](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
    return is_call_of(tasks.back(), "nimble::pointwise_convolution") && channels_into(tasks.back()) == 32
               ? 5
               : 10;
  };
  const Forced result = summed(two(), context);
  ASSERT_EQ(result.sites.size(), 1u);
  EXPECT_TRUE(result.sites.front().ends_with(": pointwise_convolution 0")) << result.sites.front();
  expect_same(result.program, two(), images_);
}

TEST_F(SumOfProducts, NotWhereNothingIsMeasuredOrMeasuringFails) {
  EXPECT_EQ(times_fired(two(), {}), 0u);
  RewriteContext context = Times{}.context();
  context.measure_side_by_side = {};
  EXPECT_EQ(times_fired(two(), context), 0u);
  context.measure_side_by_side = [](std::span<const Buffer>, std::span<const Task>) -> Nanoseconds {
    throw Error("no memory");
  };
  EXPECT_EQ(times_fired(two(), context), 0u);
}

TEST_F(SumOfProducts, EveryKernelThatWouldBeMeasuredIsKnownBeforehand) {
  const Program apart = forced(two(), images_, kFuseConvolution, {&kChannelsLast}, Times{}.context()).program;
  std::set<std::string> kernels;
  const auto consider = [&](std::span<const Task> tasks) {
    for (const Task& task : tasks) {
      const auto& [name, overload] = task.op.operator_name();
      const bool is_whole = is_product(task) && channels_into(task) == 32;
      if (is_whole || overload == "out") kernels.insert(is_whole ? name : name + '.' + overload);
    }
  };
  EXPECT_TRUE(kSumOfProducts.apply(apart, {.consider = consider}).sites.empty());
  EXPECT_EQ(kernels, (std::set<std::string>{"nimble::depthwise_convolution.out", "nimble::matrix_convolution",
                                            "nimble::pointwise_convolution"}));
}

TEST_F(SumOfProducts, RoundedToTF32OnlyWhereThatIsAllowed) {
  const at::Tensor w = weights(8, 256), v = weights(8, 256);
  const Tensors images = {image(256), image(256)};
  const Function function = [&](const Tensors& in) -> Tensors {
    return {(conv(in[0].sin(), w) + conv(in[1].cos(), v)).exp()};
  };
  const auto name_of_way = [&](bool precise) {
    RewriteContext context = Times{}.context();
    context.precise = precise;
    context.measure = [](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
      const Task& last = tasks.back();
      const auto tf32 = last.op.schema().argumentIndexWithName("tf32");
      if (tf32 && value_argument(last, *tf32).toBool()) return 1;
      return is_call_of(last, "nimble::pointwise_convolution") ? 2 : is_product(last) ? 3 : 12;
    };
    const Forced result = forced(function, images, kSumOfProducts, {&kChannelsLast}, context);
    expect_same(result.program, function, images, 1e-3);
    return result.sites.empty() ? "" : result.sites[0].substr(result.sites[0].find(": ") + 2);
  };
  EXPECT_EQ(name_of_way(false), "matrix_convolution by TF32");
  EXPECT_EQ(name_of_way(true), "matrix_convolution 0");
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
