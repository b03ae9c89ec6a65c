#include <random>

#include "forced.h"
#include "nimble/core/reachability.h"
#include "nimble/torch/dependencies.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

class CatByAddress : public RewriteTest {
 protected:
  static Forced by_address(const Function& function, const Tensors& inputs) {
    return forced(function, inputs, kCatByAddress,
                  {&kChannelsLast, &kFuseConvolution, &kPooling, &kFusePointwise});
  }
  void expect_drawn(const Function& function, const std::string& picture) const {
    const Forced result = by_address(function, images_);
    EXPECT_EQ(drawn(result.program), picture);
    expect_same(result.program, function, images_);
  }
  void expect_left_alone(const Function& function) const {
    const Forced result = by_address(function, images_);
    EXPECT_TRUE(result.sites.empty()) << result.sites.front() << drawn(result.program);
  }

  static at::Tensor images(at::IntArrayRef sizes) {
    return torch::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
  }
  static at::Tensor pool(const at::Tensor& x) { return at::max_pool2d(x, 3, 1, 1); }

  const Tensors images_ = {images({2, 8, 6, 6}), images({2, 8, 6, 6})};
};

//  max_pool ─┐                 max_pool → %0[:, :8]
//            cat ─ exp   ──▶                          exp
//  mul ──────┘                 mul ─────→ %0[:, 8:]
TEST_F(CatByAddress, PartsAreWrittenIntoTheirPlaces) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        return {at::cat({pool(in[0]), in[0] * in[1]}, 1).exp()};
      },
      R"(
%0 = nimble::max_pool2d(input0, %0)
%0 = mul(input0, input1, %0)
%1 = exp(%0)
return %1
)");
}

// Taking apart runs nothing either: a chunk is read where it lies.
TEST_F(CatByAddress, WhatIsTakenApartAgainIsReadInPlace) {
  const std::string in_place = R"(
%0 = nimble::max_pool2d(input0, %0)
%0 = mul(input0, input1, %0)
%1 = nimble::max_pool2d(%0)
%2 = exp(%0)
return %1 %2
)";
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const auto halves = at::cat({pool(in[0]), in[0] * in[1]}, 1).chunk(2, 1);
        return {pool(halves[0]), halves[1].exp()};
      },
      in_place);
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const auto parts = at::cat({pool(in[0]), in[0] * in[1]}, 1).split_with_sizes({4, 12}, 1);
        return {pool(parts[0]), parts[1].exp()};
      },
      in_place);
}

TEST_F(CatByAddress, EveryOperatorOfOursWritesIntoASlice) {
  const at::Tensor w1 = torch::randn({5, 8, 1, 1}), depthwise = torch::randn({8, 1, 3, 3}),
                   bias = torch::randn({5});
  const Function function = [=](const Tensors& in) -> Tensors {
    return {at::cat({at::conv2d(in[0], w1, bias).relu(),
                     at::conv2d(in[0], depthwise, {}, {1, 1}, {1, 1}, {1, 1}, 8), pool(in[0]),
                     at::avg_pool2d(in[0], 3, 1, 1), (in[0] * in[1]).relu()},
                    1)
                .sum()};
  };
  expect_drawn(function, R"(
%0 = nimble::pointwise_convolution(input0, extern0, extern1, %0)
%0 = nimble::depthwise_convolution(input0, derived0, %0)
%0 = nimble::max_pool2d(input0, %0)
%0 = nimble::avg_pool2d(input0, %0)
 = nimble::pointwise(input0, input1, %0)
%1 = sum(%0)
return %1
)");
}

// Who writes several has no result of its own.
TEST_F(CatByAddress, OneOfSeveralResultsOfAKernelMayBeAPart) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {at::cat({pool(in[0]), sum.relu()}, 1).exp(), sum.sum()};
      },
      R"(
%0 = nimble::max_pool2d(input0, %0)
 = nimble::pointwise(input0, input1, %1, %0)
%2 = exp(%0)
%3 = sum(%1)
return %2 %3
)");
}

TEST_F(CatByAddress, WhoWritesToOtherSlicesIsNotWaitedFor) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::cat({pool(in[0]), in[0] * in[1], in[0] + in[1]}, 1).exp()};
  };
  const Program program = by_address(function, images_).program;
  ASSERT_EQ(operators(program),
            (std::vector<std::string>{"nimble::max_pool2d", "aten::mul", "aten::add", "aten::exp"}));
  const TaskGraph graph = dependencies(program);
  const Reachability order(graph);
  for (std::uint32_t a = 0; a < 3; ++a) {
    for (std::uint32_t b = a + 1; b < 3; ++b) EXPECT_FALSE(order.happens_before(TaskId{a}, TaskId{b}));
    EXPECT_TRUE(order.happens_before(TaskId{a}, TaskId{3}));
  }
}

//  mul ─┬─ cat           mul → %0[:, :8] ── max_pool → %0[:, 8:16]
//       └─ max_pool ─┘
TEST_F(CatByAddress, OthersReadThePartInItsPlaceAndWaitForItAlone) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * in[1];
    const at::Tensor pooled = pool(product);
    return {at::cat({product, pooled, pool(in[0])}, 1).exp()};
  };
  expect_drawn(function, R"(
%0 = mul(input0, input1, %0)
%0 = nimble::max_pool2d(%0, %0)
%0 = nimble::max_pool2d(input0, %0)
%1 = exp(%0)
return %1
)");
  const TaskGraph graph = dependencies(by_address(function, images_).program);
  const Reachability order(graph);
  EXPECT_TRUE(order.happens_before(TaskId{0}, TaskId{1}));
  EXPECT_FALSE(order.happens_before(TaskId{0}, TaskId{2}));
}

//  add ─┐
//       cat ─┐
//  mul ─┘    cat  ──▶  three slices of one
//  pool ─────┘
TEST_F(CatByAddress, AConcatenationOfConcatenationsIsOne) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor inner = at::cat({in[0] + in[1], in[0] * in[1]}, 1);
    return {at::cat({pool(in[0]), inner}, 1).exp(), inner.exp()};
  };
  expect_drawn(function, R"(
%0 = add(input0, input1, %0)
%0 = mul(input0, input1, %0)
%0 = nimble::max_pool2d(input0, %0)
%1 = exp(%0)
%2 = exp(%0)
return %1 %2
)");
}

TEST_F(CatByAddress, TheResultOfAProgramMayBeWrittenInSlices) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        return {at::cat({in[0] + in[1], in[0] * in[1]}, 1)};
      },
      R"(
%0 = add(input0, input1, %0)
%0 = mul(input0, input1, %0)
return %0
)");
}

TEST_F(CatByAddress, AnyDimensionOfAnyLayout) {
  for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    for (const std::int64_t dimension : {0, 1, 2, 3, -1}) {
      const Tensors inputs = {torch::randn({2, 3, 5, 4}).contiguous(format),
                              torch::randn({2, 3, 5, 4}).contiguous(format)};
      const Function function = [=](const Tensors& in) -> Tensors {
        return {at::cat({in[0] + in[1], in[0] * in[1]}, dimension).exp()};
      };
      const Forced result = by_address(function, inputs);
      EXPECT_EQ(result.sites.size(), 1u) << dimension;
      expect_same(result.program, function, inputs);
    }
  }
}

TEST_F(CatByAddress, StacksToo) {
  const Function along_slowest = [](const Tensors& in) -> Tensors {
    return {at::stack({in[0] + in[1], in[0] * in[1]}, 0).exp()};
  };
  const Tensors rows = {torch::randn({3, 5}), torch::randn({3, 5})};
  const Forced result = by_address(along_slowest, rows);
  EXPECT_EQ(operators(result.program), (std::vector<std::string>{"aten::add", "aten::mul", "aten::exp"}));
  expect_same(result.program, along_slowest, rows);
  // Along the fastest, a part would have no two elements beside each other.
  EXPECT_TRUE(by_address(
                  [](const Tensors& in) -> Tensors {
                    return {at::stack({in[0] + in[1], in[0] * in[1]}, 2)};
                  },
                  rows)
                  .sites.empty());
}

TEST_F(CatByAddress, APartThatIsThereEarlyIsCopiedMeanwhile) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        return {at::cat({in[0], in[0] * in[1]}, 1).exp()};
      },
      R"(
%0 = mul(input0, input1, %0)
%0 = copy_(%0, input0)
%1 = exp(%0)
return %1
)");
}

// Says how long tasks take: a convolution of PyTorch's 10, a concatenation 3, everything else as given.
RewriteContext with_times(Nanoseconds of_our_convolution, Nanoseconds of_others = 1) {
  RewriteContext context;
  context.measure = [=](std::span<const Buffer>, std::span<const Task> tasks) {
    Nanoseconds sum = 0;
    for (const Task& task : tasks) {
      sum += is_call_of(task, "aten::convolution")            ? 10
             : is_call_of(task, "aten::cat")                  ? 3
             : is_call_of(task, "nimble::matrix_convolution") ? of_our_convolution
                                                              : of_others;
    }
    return sum;
  };
  return context;
}

//  convolution ─┐             nimble::matrix_convolution → %0[:, :4]
//               cat ─ exp ──▶                                         exp
//  mul ─────────┘             mul ───────────────────────→ %0[:, 4:]
TEST_F(CatByAddress, AConvolutionOfPyTorchsIsMadeByOurKernelIfThatTakesLessThanTheConcatenation) {
  const Tensors inputs = {images({2, 16, 6, 6}), images({2, 16, 6, 6})};
  const at::Tensor weight = torch::randn({4, 16, 3, 3}), bias = torch::randn({4});
  const Function function = [=](const Tensors& in) -> Tensors {
    return {at::cat({at::conv2d(in[0], weight, bias, 1, 1), in[0] * in[1]}, 1).exp()};
  };
  const Forced faster = forced(function, inputs, kCatByAddress, {&kChannelsLast}, with_times(12));
  EXPECT_EQ(drawn(faster.program), R"(
%0 = nimble::matrix_convolution(input0, derived0, extern0, %0)
%0 = mul(input0, input1, %0)
%1 = exp(%0)
return %1
)");
  expect_same(faster.program, function, inputs);
  EXPECT_TRUE(forced(function, inputs, kCatByAddress, {&kChannelsLast}, with_times(14)).sites.empty());
}

//  convolution ─────┐          convolution ─ copy → %0[:, :4], while sin is made
//                   cat  ──▶
//  mul ─ exp ─ sin ─┘          mul ─ exp ─ sin → %0[:, 4:]
TEST_F(CatByAddress, OneThatIsSlowByOurKernelIsCopiedIfThereIsTime) {
  const Tensors inputs = {images({2, 16, 6, 6}), images({2, 16, 6, 6})};
  const at::Tensor weight = torch::randn({4, 16, 3, 3});
  const Function function = [=](const Tensors& in) -> Tensors {
    return {at::cat({at::conv2d(in[0], weight, {}, 1, 1), (in[0] * in[1]).exp().sin()}, 1).exp()};
  };
  const Forced result = forced(function, inputs, kCatByAddress, {&kChannelsLast}, with_times(100));
  EXPECT_EQ(drawn(result.program), R"(
%0 = convolution(input0, derived0)
%1 = mul(input0, input1)
%2 = exp(%1)
%3 = sin(%2, %3)
%3 = copy_(%3, %0)
%4 = exp(%3)
return %4
)");
  expect_same(result.program, function, inputs);
}

TEST_F(CatByAddress, NotAConvolutionThatOurKernelDoesNotKnowOrThatHasFewChannels) {
  const auto left_alone = [&](std::int64_t channels, std::int64_t groups) {
    const Tensors inputs = {images({2, channels, 6, 6}), images({2, channels, 6, 6})};
    const at::Tensor weight = torch::randn({4, channels / groups, 3, 3});
    const Function function = [=](const Tensors& in) -> Tensors {
      return {at::cat({at::conv2d(in[0], weight, {}, 1, 1, 1, groups), in[0] * in[1]}, 1).exp()};
    };
    return forced(function, inputs, kCatByAddress, {&kChannelsLast}, with_times(1)).sites.empty();
  };
  EXPECT_FALSE(left_alone(16, 1));
  EXPECT_TRUE(left_alone(16, 2));
  EXPECT_TRUE(left_alone(8, 1));
}

TEST_F(CatByAddress, NotIfACopyWouldHaveToWaitForTheLastPart) {
  expect_left_alone([](const Tensors& in) -> Tensors {
    return {at::cat({in[0] * in[1], at::softmax(in[0], 1)}, 1).exp()};
  });
}

TEST_F(CatByAddress, NotIfMostPartsWouldHaveToBeCopied) {
  expect_left_alone([](const Tensors& in) -> Tensors {
    return {at::cat({in[0], in[1], in[0] * in[1]}, 1).exp()};
  });
}

TEST_F(CatByAddress, NotAPartThatSomebodyReadsWhoWouldCopyIt) {
  const at::Tensor weight = torch::randn({8, 8, 3, 3});
  expect_left_alone([=](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * in[1];
    return {at::cat({product, in[0] + in[1]}, 1).exp(), at::conv2d(product, weight)};
  });
}

TEST_F(CatByAddress, NotAPartThatIsAResultOfItsOwn) {
  expect_left_alone([](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * in[1];
    return {at::cat({product, in[0] + in[1]}, 1).exp(), product};
  });
}

TEST_F(CatByAddress, NotAPartThatIsWantedInTwoPlaces) {
  expect_left_alone([](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * in[1];
    return {at::cat({product, product}, 1).exp()};
  });
  expect_left_alone([](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * in[1];
    return {at::cat({product, in[0] + in[1]}, 1).exp(), at::cat({in[0] - in[1], product}, 1).exp()};
  });
}

TEST_F(CatByAddress, NotAPartOfWhatSomebodyMade) {
  expect_left_alone([](const Tensors& in) -> Tensors {
    const auto halves = (in[0] * in[1]).chunk(2, 1);
    return {at::cat({halves[1], halves[0]}, 1).exp()};
  });
}

TEST_F(CatByAddress, NotIfAPartOrTheWholeIsChangedInPlace) {
  expect_left_alone([](const Tensors& in) -> Tensors {
    at::Tensor product = in[0] * in[1];
    product.select(0, 1).fill_(1);
    return {at::cat({product, in[0] + in[1]}, 1).exp()};
  });
  expect_left_alone([](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * in[1], whole = at::cat({product, in[0] + in[1]}, 1);
    whole.select(0, 1).fill_(1);
    return {whole.exp(), product.sigmoid()};
  });
}

TEST_F(CatByAddress, NotAPartInAnotherLayoutOrOfAnotherType) {
  expect_left_alone([](const Tensors& in) -> Tensors {
    return {at::cat({in[0].contiguous() * 2, (in[0] * in[1])}, 1).exp()};
  });
  expect_left_alone([](const Tensors& in) -> Tensors {
    return {at::cat({in[0].to(at::kDouble) * 2, in[0] * in[1]}, 1).exp()};
  });
}

TEST_F(CatByAddress, WhatIsMadeOfWeightsAloneIsStillMadeOnce) {
  const at::Tensor weight = images({2, 8, 6, 6});
  expect_drawn(
      [=](const Tensors& in) -> Tensors {
        return {at::cat({weight * weight, in[0] * in[1]}, 1).exp()};
      },
      R"(
%0 = mul(input0, input1, %0)
%0 = copy_(%0, derived0)
%1 = exp(%0)
return %1
)");
}

TEST_F(CatByAddress, NotInTraining) {
  const Program program = record(images_, [](const Tensors& in) -> Tensors {
    return {at::cat({in[0] + in[1], in[0] * in[1]}, 1)};
  });
  const RewriteContext like_a_gpu{.device = c10::Device(c10::kCUDA, 0)};
  const Rewrite* const rewrites[] = {&kCatByAddress};
  EXPECT_EQ(apply_rewrites(program, rewrites, images_, like_a_gpu).reports.size(), 1u);
  RewriteContext in_training = like_a_gpu;
  in_training.trains = true;
  EXPECT_TRUE(apply_rewrites(program, rewrites, images_, in_training).reports.empty());
}

TEST_F(CatByAddress, WhatIsReadWholeMustHaveBeenWrittenSliceBySlice) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::cat({in[0] + in[1], in[0] * in[1]}, 1).exp()};
  };
  const Program program = by_address(function, images_).program;
  Program forgetful = program;
  forgetful.tasks.erase(forgetful.tasks.begin());
  EXPECT_THROW(check_program(forgetful, program, "test"), Error);
}

// Tensors of few channels that are joined, pooled, summed, looked at in parts and changed in place.
Function random_program(unsigned seed) {
  return [seed](const Tensors& in) -> Tensors {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) {
      return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
    };
    Tensors values(in.begin(), in.end());
    const auto any = [&]() -> at::Tensor& { return values[below(values.size())]; };
    const auto like = [&](const at::Tensor& x) {
      Tensors fitting;
      for (const at::Tensor& value : values)
        if (value.sizes() == x.sizes()) fitting.push_back(value);
      return fitting[below(fitting.size())];
    };
    for (int step = 0; step < 14; ++step) {
      const at::Tensor x = any();
      switch (below(8)) {
        case 0:
          values.push_back(x + like(x));
          break;
        case 1:
          values.push_back(x.sigmoid());
          break;
        case 2:
          values.push_back(at::max_pool2d(x, 3, 1, 1));
          break;
        case 3:
          values.push_back(x.chunk(2, 1).back());
          break;
        case 4:
          values.push_back((x * 2).mul_(like(x)));
          break;
        default: {
          Tensors parts = {x};
          for (std::size_t n = below(3); n > 0; --n) parts.push_back(any());
          if (at::cat(parts, 1).size(1) <= 64) values.push_back(at::cat(parts, 1));
        }
      }
    }
    return {values.back(), any().clone(), any() + 1};
  };
}

TEST_F(CatByAddress, RandomProgramsGiveTheSame) {
  std::size_t fired = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Tensors inputs = {images({1 + seed % 2, 3, 4, 4}), images({1 + seed % 2, 4, 4, 4})};
    const Forced result = by_address(random_program(seed), inputs);
    fired += result.sites.size();
    expect_same(result.program, random_program(seed), inputs);
  }
  EXPECT_GT(fired, 20u);
}

}  // namespace
}  // namespace nimble
