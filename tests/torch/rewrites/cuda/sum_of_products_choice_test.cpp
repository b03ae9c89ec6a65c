// Which sums of products become one, and by which kernel, by the times that were measured.
#include <set>

#include "sum_of_products.h"

namespace nimble {
namespace {

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

}  // namespace
}  // namespace nimble
