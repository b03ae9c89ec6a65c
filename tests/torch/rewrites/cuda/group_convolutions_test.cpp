#include <random>

#include "forced.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

bool is_group(const Task& task) { return is_call_of(task, "nimble::matrix_convolutions"); }

// As if these had been measured.
struct Times {
  Nanoseconds group = 12, side_by_side = 20;
  Nanoseconds others = 10;  // each
  Nanoseconds our_kernel = 10;

  RewriteContext context() const {
    const auto alone = [*this](std::span<const Buffer>, std::span<const Task> tasks) {
      Nanoseconds sum = 0;
      for (const Task& task : tasks) {
        sum += is_group(task) ? group : is_call_of(task, "nimble::matrix_convolution") ? our_kernel : others;
      }
      return sum;
    };
    const auto beside = [*this](std::span<const Buffer>, std::span<const Task>) { return side_by_side; };
    return {.measure = alone, .measure_side_by_side = beside, .measure_seconds = 100};
  }
};

class GroupConvolutions : public RewriteTest {
 protected:
  const std::vector<const Rewrite*> kBefore = {&kFoldBatchNorm, &kChannelsLast, &kFuseConvolution};

  Forced grouped(const Function& function, const Times& times = {}) const {
    return forced(function, image_, kGroupConvolutions, kBefore, times.context());
  }
  // And then what is concatenated is written by address.
  Forced with_cat(const Function& function) const {
    auto before = kBefore;
    before.push_back(&kGroupConvolutions);
    return forced(function, image_, kCatByAddress, before, Times{}.context());
  }
  void expect_drawn(const Forced& result, const Function& function, const std::string& picture) const {
    EXPECT_EQ(drawn(result.program), picture);
    expect_same(result.program, function, image_);
  }
  void expect_untouched(const Function& function) const {
    const Forced result = grouped(function);
    EXPECT_TRUE(result.sites.empty()) << result.sites.front() << drawn(result.program);
    expect_same(result.program, function, image_);
  }

  static at::Tensor weights(std::int64_t filters, std::int64_t size = 1, std::int64_t channels = 16) {
    return torch::randn({filters, channels, size, size}) / static_cast<double>(4 * size);
  }
  static at::Tensor conv(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias = {},
                         std::int64_t stride = 1, std::int64_t padding = 0) {
    return at::conv2d(x, w, bias, {stride, stride}, {padding, padding});
  }

  const Tensors image_ = {torch::randn({1, 16, 6, 5}).contiguous(at::MemoryFormat::ChannelsLast)};
  const at::Tensor a_ = weights(8), b_ = weights(16), c_ = weights(5), bias_a_ = torch::randn({8}),
                   bias_b_ = torch::randn({16}), bias_c_ = torch::randn({5}), three_ = weights(8, 3, 8),
                   bias_three_ = torch::randn({8});

  // Three that may be grouped.
  Function three() const {
    return [this](const Tensors& in) -> Tensors {
      return {conv(in[0], a_, bias_a_).relu().exp(), conv(in[0], b_, bias_b_).relu().sin(),
              conv(in[0], c_, bias_c_).relu().cos()};
    };
  }
};

//      ┌─▶ 1×1 a ─▶ exp                            ┌─▶ exp
//   x ─┼─▶ 1×1 b ─▶ sin     ──▶   x ─▶ [a, b, c] ──┼─▶ sin
//      └─▶ 1×1 c ─▶ cos                            └─▶ cos
TEST_F(GroupConvolutions, OnTheSameInputBecomeOneLaunch) {
  const Forced result = grouped(three());
  EXPECT_EQ(result.sites, std::vector<std::string>{
                              "nimble::pointwise_convolution#0 and nimble::pointwise_convolution#2 and "
                              "nimble::pointwise_convolution#4: matrix_convolutions 0"});
  expect_drawn(result, three(), R"(
%0, %1, %2 = nimble::matrix_convolutions(input0, extern0, extern1, extern2, extern3, extern4, extern5)
%3 = exp(%0)
%4 = sin(%1)
%5 = cos(%2)
return %3 %4 %5
)");
}

//   mul ─┬─▶ 1×1 a ─▶ 3×3 ─▶ exp                     ┌─▶ 3×3 ─▶ exp
//        └─▶ 1×1 b ─▶ sin          ──▶   mul ─▶ [a, b] ┴─▶ sin
TEST_F(GroupConvolutions, WhereTheFirstStoodSinceItsResultIsReadSoonAfter) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2;
    const at::Tensor y = conv(conv(x, a_, bias_a_).relu(), three_, bias_three_);
    return {y.exp(), conv(x, b_, bias_b_).relu().sin()};
  };
  expect_drawn(grouped(function), function, R"(
%0 = mul(input0)
%1, %2 = nimble::matrix_convolutions(%0, extern0, extern1, extern2, extern3)
%3 = convolution(%1, derived0, extern4)
%4 = exp(%3)
%5 = sin(%2)
return %4 %5
)");
}

// A batch norm becomes part of the weights right before its convolution: behind the first sibling.
TEST_F(GroupConvolutions, WeightsThatAreMadeLaterAreMadeSooner) {
  const at::Tensor mean = torch::randn({8}), variance = torch::rand({8}) + 0.5, scale = torch::randn({8}),
                   shift = torch::randn({8}), other = weights(8);
  const Function function = [&](const Tensors& in) -> Tensors {
    const auto layer = [&](const at::Tensor& weight) {
      return at::batch_norm(conv(in[0], weight), scale, shift, mean, variance, false, 0.1, 1e-5, false)
          .relu();
    };
    const at::Tensor first = layer(a_);
    return {conv(first, three_).exp(), layer(other).sin()};
  };
  const Forced result = grouped(function);
  ASSERT_EQ(result.sites.size(), 1u);
  expect_drawn(result, function, R"(
%0, %1 = nimble::matrix_convolutions(input0, derived0, derived1, derived2, derived3)
%2 = convolution(%0, derived4)
%3 = exp(%2)
%4 = sin(%1)
return %3 %4
)");
}

TEST_F(GroupConvolutions, HoweverEachOfThemIsComputed) {
  const Function without_activation = [&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_).exp(), conv(in[0], b_).sin()};
  };
  const auto kinds = [&](const std::vector<const Rewrite*>& before, const Times& times) {
    const Program apart = forced(without_activation, image_, *before.back(), {}, times.context()).program;
    const Forced result = forced(without_activation, image_, kGroupConvolutions, before, times.context());
    EXPECT_EQ(result.sites.size(), 1u) << drawn(apart);
    expect_same(result.program, without_activation, image_);
    return apart.tasks[0].op.operator_name().name;
  };
  EXPECT_EQ(kinds({&kChannelsLast}, {}), "aten::convolution");
  EXPECT_EQ(kinds({&kChannelsLast, &kFuseConvolution}, {}), "nimble::pointwise_convolution");
  EXPECT_EQ(kinds({&kChannelsLast, &kFuseConvolution}, {.our_kernel = 8}), "nimble::matrix_convolution");
}

TEST_F(GroupConvolutions, MoreThanALaunchTakesBecomeSeveral) {
  Tensors all;
  for (int i = 0; i < 10; ++i) all.push_back(weights(4 + i));
  const Function function = [&](const Tensors& in) -> Tensors {
    Tensors results;
    for (const at::Tensor& weight : all) results.push_back(conv(in[0], weight).exp());
    return results;
  };
  const Forced result = grouped(function);
  std::vector<std::size_t> sizes;
  for (const Task& task : result.program.tasks) {
    if (is_group(task)) sizes.push_back(std::get<TensorRefList>(task.results[0]).refs.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{8, 2}));
  expect_same(result.program, function, image_);
}

TEST_F(GroupConvolutions, FollowTheirWeights) {
  const at::Tensor weight = a_.clone();
  const Function function = [&](const Tensors& in) -> Tensors {
    return {conv(in[0], weight, bias_a_).relu().exp(), conv(in[0], b_, bias_b_).relu().sin()};
  };
  const Forced result = grouped(function);
  ASSERT_EQ(result.sites.size(), 1u);
  weight.mul_(3);
  derive_all(result.program);
  expect_same(result.program, function, image_);
}

TEST_F(GroupConvolutions, AResultOfTheProgramMayBeOneOfThem) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_, bias_a_).relu(), conv(in[0], b_, bias_b_).relu()};
  };
  expect_drawn(grouped(function), function, R"(
%0, %1 = nimble::matrix_convolutions(input0, extern0, extern1, extern2, extern3)
return %0 %1
)");
}

//      ┌─▶ 1×1 a ───────────┐                        ┌─▶ %0[:, :8]
//   x ─┼─▶ 1×1 b ───────────┼─▶ cat  ──▶  [a, b, c] ─┼─▶ %0[:, 8:24]
//      └─▶ 1×1 c ─▶ sigmoid ┘                        └─▶ %1 ─▶ sigmoid ─▶ %0[:, 24:]
TEST_F(GroupConvolutions, EachResultGoesToItsSliceOfAConcatenationOrStaysByItself) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor a = conv(in[0], a_, bias_a_).relu(), b = conv(in[0], b_, bias_b_).relu(),
                     c = conv(in[0], c_, bias_c_).relu();
    return {at::cat({a, b, c.sigmoid()}, 1).exp()};
  };
  const Forced result = with_cat(function);
  EXPECT_EQ(result.sites.size(), 1u);
  expect_drawn(result, function, R"(
 = nimble::matrix_convolutions(input0, extern0, extern1, extern2, extern3, extern4, extern5, %0, %0, %1)
%0 = sigmoid(%1, %0)
%2 = exp(%0)
return %2
)");
}

TEST_F(GroupConvolutions, TheirResultsMayBePartsOfSeveralConcatenations) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor a = conv(in[0], a_, bias_a_).relu(), b = conv(in[0], b_, bias_b_).relu(),
                     c = conv(in[0], c_, bias_c_).relu(), d = in[0] * in[0];
    return {at::cat({a, d.sin()}, 1).exp(), at::cat({at::cat({b, d.exp()}, 1), d.cos()}, 1).exp(), c};
  };
  const Forced result = with_cat(function);
  EXPECT_EQ(result.sites.size(), 2u);
  expect_drawn(result, function, R"(
 = nimble::matrix_convolutions(input0, extern0, extern1, extern2, extern3, extern4, extern5, %0, %1, %2)
%3 = mul(input0, input0)
%0 = sin(%3, %0)
%4 = exp(%0)
%1 = exp(%3, %1)
%1 = cos(%3, %1)
%5 = exp(%1)
return %4 %5 %2
)");
}

TEST_F(GroupConvolutions, NotOnOtherInputsNorWhereOneReadsTheOther) {
  const at::Tensor square = weights(16), other = weights(16);
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_).exp(), conv(in[0] * 2, b_).sin()};
  });
  expect_untouched(
      [&](const Tensors& in) -> Tensors { return {conv(conv(in[0], square).relu(), other).relu().exp()}; });
  const at::Tensor narrow = weights(8, 1, 8), also_narrow = weights(4, 1, 8);
  expect_untouched([&](const Tensors& in) -> Tensors {  // other channels of the same memory
    return {conv(in[0].slice(1, 0, 8), narrow).exp(), conv(in[0].slice(1, 8, 16), also_narrow).sin()};
  });
}

TEST_F(GroupConvolutions, NotWithOtherActivationsOrOnlySometimesWithABias) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_, bias_a_).relu().exp(), conv(in[0], b_, bias_b_).sigmoid().sin()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_, bias_a_).relu().exp(), conv(in[0], b_).relu().sin()};
  });
}

TEST_F(GroupConvolutions, NotWithLargerFiltersStridesOrPadding) {
  const at::Tensor larger = weights(8, 3);
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_).exp(), conv(in[0], larger).sin()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_, {}, 2).exp(), conv(in[0], b_, {}, 2).sin()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_, {}, 1, 1).exp(), conv(in[0], b_, {}, 1, 1).sin()};
  });
}

TEST_F(GroupConvolutions, NotOneThatTookASumIn) {
  const at::Tensor other = weights(16);
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(in[0], other, bias_b_) + in[0]).relu().exp(), conv(in[0], b_, bias_b_).relu().sin()};
  });
}

TEST_F(GroupConvolutions, NotWithWeightsThatTheProgramMakesOrWrites) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {conv(in[0], a_).exp(), conv(in[0], b_ * in[0].sum()).sin()};
  });
  const at::Tensor weight = b_.clone();
  const Function writes = [&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(in[0], a_).exp();
    weight.add_(1e-3);
    return {first, conv(in[0], weight).sin()};
  };
  EXPECT_TRUE(grouped(writes).sites.empty());
}

TEST_F(GroupConvolutions, NotIfTheInputIsChangedInBetween) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 2;
    const at::Tensor y = conv(x, a_).exp();
    x.select(1, 0).zero_();
    return {y, conv(x, b_).sin()};
  });
}

TEST_F(GroupConvolutions, NotWhereChannelsOfAPixelLieApart) {
  const Tensors contiguous = {image_[0].contiguous()};
  const Forced result =
      forced(three(), contiguous, kGroupConvolutions, {&kFuseConvolution}, Times{}.context());
  EXPECT_TRUE(result.sites.empty()) << drawn(result.program);
}

TEST_F(GroupConvolutions, InSinglePrecisionOnlyWhereTF32IsAllowed) {
  struct Disallow {
    bool before = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
    Disallow() { at::globalContext().setAllowTF32CuDNN(false); }
    ~Disallow() { at::globalContext().setAllowTF32CuDNN(before); }
  };
  const Disallow disallow;
  expect_untouched(three());
  const at::Tensor a = a_.to(at::kBFloat16), b = b_.to(at::kBFloat16);
  const Function in_half = [&](const Tensors& in) -> Tensors { return {conv(in[0], a), conv(in[0], b)}; };
  const Tensors image = {image_[0].to(at::kBFloat16)};
  EXPECT_EQ(forced(in_half, image, kGroupConvolutions, kBefore, Times{}.context()).sites.size(), 1u);
}

TEST_F(GroupConvolutions, NotInTraining) {
  const Program program = record(image_, three());
  RewriteContext like_a_gpu = Times{}.context();
  like_a_gpu.device = c10::Device(c10::kCUDA, 0);
  const Rewrite* const rewrites[] = {&kGroupConvolutions};
  EXPECT_TRUE(kGroupConvolutions.is_for(like_a_gpu.device));
  EXPECT_FALSE(kGroupConvolutions.is_for(c10::kCPU));
  like_a_gpu.trains = true;
  EXPECT_TRUE(apply_rewrites(program, rewrites, image_, like_a_gpu).reports.empty());
}

TEST_F(GroupConvolutions, OnlyWhereOneLaunchIsClearlyFasterThanSideBySide) {
  EXPECT_EQ(grouped(three(), {.group = 12, .side_by_side = 13}).sites.size(), 1u);
  EXPECT_EQ(grouped(three(), {.group = 12, .side_by_side = 12}).sites.size(), 0u);
  EXPECT_EQ(grouped(three(), {.group = 13, .side_by_side = 12}).sites.size(), 0u);
}

//   x ─┬─▶ 1×1 a ─▶ exp ─▶ sin ─▶ …   a is what most is waiting for
//      └─▶ 1×1 b ─▶ cos
TEST_F(GroupConvolutions, NotWhereTheOneThatMostIsWaitingForWouldEndMuchSoonerAlone) {
  const auto with_times = [&](Nanoseconds of_a, Nanoseconds of_b) {
    RewriteContext context = Times{.side_by_side = 40}.context();
    context.measure = [=](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
      if (is_group(tasks[0])) return 30;
      const auto filters = tensor_argument(tasks[0], 1)->sizes[0];
      return filters == 8 ? of_a : of_b;
    };
    const Function function = [&](const Tensors& in) -> Tensors {
      return {conv(in[0], a_).exp().sin().exp(), conv(in[0], b_).cos()};
    };
    return forced(function, image_, kGroupConvolutions, {&kChannelsLast}, context).sites.size();
  };
  EXPECT_EQ(with_times(20, 25), 1u);
  EXPECT_EQ(with_times(20, 5), 1u);
  EXPECT_EQ(with_times(5, 25), 0u);
}

TEST_F(GroupConvolutions, NotWhereNothingIsMeasuredOrMeasuringFails) {
  EXPECT_TRUE(forced(three(), image_, kGroupConvolutions, kBefore).sites.empty());
  RewriteContext context = Times{}.context();
  context.measure_side_by_side = {};
  EXPECT_TRUE(forced(three(), image_, kGroupConvolutions, kBefore, context).sites.empty());
  context.measure_side_by_side = [](std::span<const Buffer>, std::span<const Task>) -> Nanoseconds {
    throw Error("no memory");
  };
  EXPECT_TRUE(forced(three(), image_, kGroupConvolutions, kBefore, context).sites.empty());
}

TEST_F(GroupConvolutions, EveryWayThatWouldBeMeasuredIsKnownBeforehand) {
  const Program apart = forced(three(), image_, kFuseConvolution, {&kChannelsLast}).program;
  std::size_t groups = 0;
  const auto consider = [&](std::span<const Task> tasks) { groups += is_group(tasks[0]); };
  kGroupConvolutions.apply(apart, {.consider = consider});
  EXPECT_GT(groups, 1u);
}

TEST_F(GroupConvolutions, RoundedToTF32OnlyWhereThatIsAllowed) {
  const at::Tensor a = weights(8, 1, 512), b = weights(16, 1, 512);
  const Tensors image = {torch::randn({1, 512, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast)};
  const Function function = [&](const Tensors& in) -> Tensors { return {conv(in[0], a), conv(in[0], b)}; };
  const auto rounds = [&](bool precise) {
    RewriteContext context = Times{}.context();
    context.precise = precise;
    context.measure = [](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
      return is_group(tasks[0]) && value_argument(tasks[0], 5).toBool() ? 1 : 12;
    };
    const Forced result = forced(function, image, kGroupConvolutions, {&kChannelsLast}, context);
    EXPECT_EQ(result.sites.size(), 1u);
    return value_argument(result.program.tasks[0], 5).toBool();
  };
  EXPECT_TRUE(rounds(false));
  EXPECT_FALSE(rounds(true));
}

TEST_F(GroupConvolutions, RandomNetworksGiveWhatEagerGives) {
  const Tensors squares = {weights(16), weights(16), weights(16)};
  const at::Tensor larger = weights(16, 3);
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
      Tensors values = {in[0] * 2};
      const auto pick = [&]() -> const at::Tensor& { return values[random() % values.size()]; };
      const auto weight = [&]() -> const at::Tensor& { return squares[random() % squares.size()]; };
      for (int i = 0; i < 14; ++i) {
        switch (random() % 8) {
          case 0:
          case 1:
          case 2:
            values.push_back(conv(pick(), weight(), bias_b_).relu());
            break;
          case 3:
            values.push_back(conv(pick(), weight()));
            break;
          case 4:
            values.push_back(at::cat({pick(), pick(), pick()}, 1).slice(1, 8, 24).sin());
            break;
          case 5:
            values.push_back(pick() + pick());
            break;
          case 6:
            values.push_back(conv(pick(), larger, bias_b_, 1, 1).relu());
            break;
          case 7:
            values.push_back((pick() * 0.5).sin_());
            break;
        }
      }
      return {values.back() * 1, values[values.size() / 2] * 1, at::cat({pick(), pick()}, 1)};
    };
    SCOPED_TRACE(seed);
    fired += grouped(function).sites.size();
    expect_same(grouped(function).program, function, image_, 1e-3);
    expect_same(with_cat(function).program, function, image_, 1e-3);
  }
  EXPECT_GT(fired, 30u);
}

}  // namespace
}  // namespace nimble
