#include "forced.h"
#include "random_values.h"

namespace nimble {
namespace {

class FusePointwise : public RewriteTest {
 protected:
  static Forced fused(const Function& function, const Tensors& inputs) {
    return forced(function, inputs, kFusePointwise);
  }
  void expect_drawn(const Function& function, const std::string& picture) {
    const Forced result = fused(function, inputs_);
    EXPECT_EQ(drawn(result.program), picture);
    expect_same(result.program, function, inputs_, 0);  // the same calls, so the same bits
  }
  const Tensors inputs_ = {torch::randn({4, 6}), torch::randn({4, 6})};
};

TEST_F(FusePointwise, AChainBecomesOneTask) {
  expect_drawn([](const Tensors& in) -> Tensors { return {((in[0] * in[1]).relu() + in[0]).sigmoid()}; }, R"(
%0 = nimble::pointwise(input0, input1)
return %0
)");
}

TEST_F(FusePointwise, NumbersBecomePartOfTheKernel) {
  expect_drawn([](const Tensors& in) -> Tensors { return {((in[0] * 0.5).relu() + 2) / 3}; }, R"(
%0 = nimble::pointwise(input0)
return %0
)");
}

TEST_F(FusePointwise, NotWhereTheOperatorTakesNoNumber) {
  expect_drawn([](const Tensors& in) -> Tensors { return {at::div(in[0].relu(), 0.3, "floor").sigmoid()}; },
               R"(
%0 = relu(input0)
%1 = div(%0)
%2 = sigmoid(%1)
return %2
)");
}

TEST_F(FusePointwise, BothOperandsAreTakenInWhereNeitherIsWaitedForLonger) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor a = in[0].relu(), b = in[1].sigmoid();
        return {a * b};
      },
      R"(
%0 = nimble::pointwise(input0, input1)
return %0
)");
}

TEST_F(FusePointwise, WorkThatFitsBesideSomethingSlowerStaysThere) {
  // exp runs beside the product; in one kernel with the sum it would have to wait for it.
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor slow = in[0].matmul(in[1].t()).sum(1, true), quick = in[0].exp();
        return {(slow + quick).relu()};
      },
      R"(
%0 = mm(input0, input1)
%1 = sum(%0)
%2 = exp(input0)
%3 = nimble::pointwise(%1, %2)
return %3
)");
}

//        ┌─▶ relu ────▶
//  exp ──┤               ──▶   one kernel with two results
//        └─▶ sigmoid ─▶
TEST_F(FusePointwise, WhoReadsTheSameSharesTheKernelThatMakesIt) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].exp();
        return {x.relu(), x.sigmoid() * in[1]};
      },
      R"(
%0, %1 = nimble::pointwise(input0, input1)
return %0 %1
)");
}

// A residual stream: the sum is what the next block begins with, and what is added to its result.
TEST_F(FusePointwise, WhatOthersReadTooIsOneMoreResult) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {sum.relu().matmul(in[0].t()).matmul(in[1]) + sum};
      },
      R"(
%0, %1 = nimble::pointwise(input0, input1)
%2 = mm(%1, input0)
%3 = mm(%2, input1)
%4 = add(%3, %0)
return %4
)");
}

// As autocast does it: products in half precision, sums in float32.
TEST_F(FusePointwise, ResultsMayBeOfSeveralTypes) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1], half = sum.to(at::kHalf);
        return {half.t().matmul(half).to(at::kFloat), sum.sum()};
      },
      R"(
%0, %1 = nimble::pointwise(input0, input1)
%2 = mm(%1, %1)
%3 = _to_copy(%2)
%4 = sum(%0)
return %3 %4
)");
}

TEST_F(FusePointwise, TheKernelComesBeforeAllThatReadItsResults) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].exp();
        const at::Tensor product = x.matmul(in[1].t());  // recorded before the other reader
        return {product, x.relu()};
      },
      R"(
%0, %1 = nimble::pointwise(input0)
%2 = mm(%0, input1)
return %2 %1
)");
}

TEST_F(FusePointwise, NotWhereWhatItReadsIsRecordedBehindAnotherReader) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].matmul(in[1].t()).exp(), early = x.sum();
        return {early, x * in[0].matmul(in[0].t())};
      },
      R"(
%0 = mm(input0, input1)
%1 = exp(%0)
%2 = sum(%1)
%3 = mm(input0, input0)
%4 = mul(%1, %3)
return %2 %4
)");
}

TEST_F(FusePointwise, NobodyIsMadeToWaitForWhatComesLater) {
  // The product needs exp at once; in one kernel with the sum it would have to wait for the other product.
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor slow = in[0].matmul(in[1].t()).matmul(in[0]), x = in[0].exp();
        return {x.matmul(in[1].t()), slow + x};
      },
      R"(
%0 = mm(input0, input1)
%1 = mm(%0, input0)
%2 = exp(input0)
%3 = mm(%2, input1)
%4 = add(%1, %2)
return %3 %4
)");
}

TEST_F(FusePointwise, NobodyWhoWaitsForOneBranchIsMadeToWaitForTwo) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor a = in[0].exp(), b = in[1].sigmoid();
        return {a.matmul(in[0].t()), b.matmul(in[0].t()), a + b};
      },
      R"(
%0 = exp(input0)
%1 = sigmoid(input1)
%2 = mm(%0, input0)
%3 = mm(%1, input0)
%4 = add(%0, %1)
return %2 %3 %4
)");
}

TEST_F(FusePointwise, AValueMayBeReadSeveralTimes) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0] + in[1];
        return {x * x * x.sigmoid()};
      },
      R"(
%0 = nimble::pointwise(input0, input1)
return %0
)");
}

TEST_F(FusePointwise, NotWhatTheSameTaskAlsoSeesThroughAView) {
  const Tensors square = {torch::randn({4, 4})};
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].exp();
    return {x + x.t()};
  };
  EXPECT_TRUE(fused(function, square).sites.empty());
}

TEST_F(FusePointwise, AKernelHasFourResultsAtMost) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].exp();
    return {x.relu(), x.sigmoid(), x.neg(), x.abs(), x.tanh(), x.sqrt()};
  };
  const Forced result = fused(function, inputs_);
  for (const Task& task : result.program.tasks) EXPECT_LE(task.writes.size(), 4u);
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, function, inputs_, 0);
}

TEST_F(FusePointwise, BranchesSideBySideAreNotGlued) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        return {in[0].exp().relu(), in[0].sigmoid().relu()};
      },
      R"(
%0 = nimble::pointwise(input0)
%1 = nimble::pointwise(input0)
return %0 %1
)");
}

TEST_F(FusePointwise, WhatIsReturnedIsOneMoreResult) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].exp();
        return {x, x.relu()};
      },
      R"(
%0, %1 = nimble::pointwise(input0)
return %0 %1
)");
}

TEST_F(FusePointwise, NothingIsComputedAgainForEachCopy) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {(in[0].select(0, 0).exp() + in[1]).relu()};
  };
  expect_drawn(function, R"(
%0 = exp(input0)
%1 = nimble::pointwise(%0, input1)
return %1
)");
}

TEST_F(FusePointwise, NothingIsMadeAnewEachTimeThatIsMadeOnceOfWeights) {
  const at::Tensor table = torch::randn({4, 6}), other = torch::randn({4, 6});
  expect_drawn([&](const Tensors& in) -> Tensors { return {(in[0] + (table + other)).relu()}; }, R"(
%0 = nimble::pointwise(input0, derived0)
return %0
)");
}

TEST_F(FusePointwise, CastsBecomePartOfTheKernel) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor a = in[0].to(at::kHalf), b = in[1].to(at::kHalf);
        return {(a * b).to(at::kFloat)};
      },
      R"(
%0 = nimble::pointwise(input0, input1)
return %0
)");
}

TEST_F(FusePointwise, NotCopiesThatChangeMoreThanTheType) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor image = in[0].relu().view({1, 2, 3, 4});
        return {image.to(at::kHalf, false, false, at::MemoryFormat::ChannelsLast).relu(),
                in[1].to(at::kInt).neg()};
      },
      R"(
%0 = relu(input0)
%1 = _to_copy(%0)
%2 = relu(%1)
%3 = _to_copy(input1)
%4 = neg(%3)
return %2 %4
)");
}

// What comes before them fuses as ever.
TEST_F(FusePointwise, NotCastsToTypesThatNoKernelKnows) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {(in[0] * 2).clamp(-448, 448).to(at::kFloat8_e4m3fn).to(at::kFloat)};
  };
  const Forced result = fused(function, inputs_);
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, function, inputs_, 0);
}

TEST_F(FusePointwise, NotProductsWithComplexNumbers) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::real((in[0] + 1).relu() * c10::complex<double>(0, 1) * c10::complex<double>(0, 1))};
  };
  const Forced result = fused(function, inputs_);
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, function, inputs_, 0);
}

TEST_F(FusePointwise, NotAcrossAChangeOfWhatIsRead) {
  const at::Tensor state = torch::randn({4, 6});
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor x = state.exp();
    state.add_(in[0]);
    return {x.relu()};
  };
  EXPECT_TRUE(fused(function, inputs_).sites.empty());
}

TEST_F(FusePointwise, NotThroughAView) {
  expect_drawn([](const Tensors& in) -> Tensors { return {in[0].exp().t().relu()}; }, R"(
%0 = exp(input0)
%1 = relu(%0)
return %1
)");
}

TEST_F(FusePointwise, RandomProgramsGiveEagersBits) {
  using Values = RandomValues;
  const std::vector<Values::Operation> operations = {
      [](Values& v) { return v.pick().relu(); },
      [](Values& v) { return v.pick() + v.pick(); },
      [](Values& v) { return v.pick() * v.pick(); },
      [](Values& v) { return at::sub(v.pick(), v.pick(), 0.5); },
      [](Values& v) { return v.pick().sigmoid(); },
      [](Values& v) { return at::where(v.pick() > 0.25, v.pick(), v.pick()); },
      [](Values& v) { return v.pick().clamp(-1, 1); },
      [](Values& v) { return v.pick_own().mul_(0.5); },
      [](Values& v) { return v.pick() + v.pick().select(0, 1); },
      [](Values& v) { return v.pick().matmul(at::eye(6)); },
  };
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      Values values({in[0], in[1], in[0] * in[1]}, /*made=*/2, seed);
      values.grow(15, operations);
      return {values.last(), values[8] * 1};
    };
    SCOPED_TRACE(seed);
    const Forced result = fused(function, inputs_);
    fired += result.sites.size();
    expect_same(result.program, function, inputs_, 0);
  }
  EXPECT_GT(fired, 100u);
}

}  // namespace
}  // namespace nimble
