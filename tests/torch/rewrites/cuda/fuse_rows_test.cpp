#include "fuse_rows.h"
#include "nimble/torch/rewrites/uses.h"
#include "random_values.h"

namespace nimble {
namespace {

TEST_F(FuseRows, ALayerNormTakesInTheSumBeforeIt) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {norm(in[0] + in[1])}; }, R"(
%0 = nimble::rows(input0, input1, extern0, extern1)
return %0
)");
}

// A transformer's residual stream.
TEST_F(FuseRows, ASumThatOthersNeedTooIsWrittenAsWell) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {norm(sum).matmul(matrix_).relu() + sum};
      },
      R"(
%0, %1 = nimble::rows(input0, input1, extern0, extern1)
%2 = mm(%1, extern2)
%3 = relu(%2)
%4 = add(%3, %0)
return %4
)");
}

TEST_F(FuseRows, ASumThatIsReturnedIsWrittenAsWell) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {norm(sum), sum};
      },
      R"(
%0, %1 = nimble::rows(input0, input1, extern0, extern1)
return %1 %0
)");
}

TEST_F(FuseRows, ASoftmaxTakesInItsScaleAndItsMask) {
  const at::Tensor mask = torch::randn({4, 6});
  expect_drawn([&](const Tensors& in) -> Tensors { return {((in[0] * in[1]) * 0.125 + mask).softmax(-1)}; },
               R"(
%0 = nimble::rows(input0, input1, extern0)
return %0
)");
}

TEST_F(FuseRows, ASafeSoftmaxToo) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {at::_safe_softmax(in[0] + in[1], -1)}; }, R"(
%0 = nimble::rows(input0, input1)
return %0
)");
}

TEST_F(FuseRows, WhatFollowsIsTakenIn) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {at::gelu(norm(in[0])) * in[1]}; }, R"(
%0 = nimble::rows(input0, extern0, extern1, input1)
return %0
)");
}

// As autocast does it: norms in float32, products in half precision.
TEST_F(FuseRows, CastsAreTakenInAndMayBeASecondResult) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0].to(at::kBFloat16).to(at::kFloat) + in[1], y = norm(sum);
        return {y.to(at::kBFloat16).matmul(matrix_.to(at::kBFloat16)), y.matmul(matrix_)};
      },
      R"(
%0, %1 = nimble::rows(input0, input1, extern0, extern1)
%2 = mm(%1, derived0)
%3 = mm(%0, extern2)
return %2 %3
)");
}

TEST_F(FuseRows, ValuesBeforeItMayBeNeededBehindIt) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {norm(sum) + sum};
      },
      R"(
%0 = nimble::rows(input0, input1, extern0, extern1)
return %0
)");
}

TEST_F(FuseRows, RowsMayHaveSeveralDimensions) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        return {at::layer_norm(in[0] + in[1], {4, 6})};
      },
      R"(
%0 = nimble::rows(input0, input1)
return %0
)");
}

TEST_F(FuseRows, OneAfterTheOtherAreOneKernelUnlessSomethingElseIsBetween) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor first = norm(in[0] + in[1]).relu();
        return {norm(first.matmul(matrix_) + first).softmax(-1)};
      },
      R"(
%0 = nimble::rows(input0, input1, extern0, extern1)
%1 = mm(%0, extern2)
%2 = nimble::rows(%1, %0, extern0, extern1)
return %2
)");
}

TEST_F(FuseRows, WorkThatFitsBesideSomethingSlowerStaysThere) {
  // exp runs beside the products; in one kernel with the sum it would have to wait for them.
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor slow = in[0].matmul(matrix_).matmul(matrix_), quick = in[1].exp();
        return {norm(slow + quick)};
      },
      R"(
%0 = mm(input0, extern0)
%1 = mm(%0, extern0)
%2 = exp(input1)
%3 = nimble::rows(%1, %2, extern1, extern2)
return %3
)");
}

TEST_F(FuseRows, WhatOthersWaitForIsNotKeptFromThem) {
  // The product of the first sum need not wait for that of in[1], for which the second sum waits.
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + 1, slow = in[1].matmul(matrix_);
        return {norm(sum + slow), sum.matmul(matrix_)};
      },
      R"(
%0 = add(input0)
%1 = mm(input1, extern0)
%2 = nimble::rows(%0, %1, extern1, extern2)
%3 = mm(%0, extern0)
return %2 %3
)");
}

TEST_F(FuseRows, ANormThatCouldRunMeanwhileDoesNotWaitForWhatIsAddedToIt) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor product = in[1].matmul(matrix_);
        return {norm(in[0] + in[1]) + product};
      },
      R"(
%0 = mm(input1, extern0)
%1 = nimble::rows(input0, input1, extern1, extern2)
%2 = add(%1, %0)
return %2
)");
}

TEST_F(FuseRows, WhatFollowsMustNotNeedWhatIsMadeOfTheSum) {
  // In one kernel with the last sum, the product would have to be known before the sum that it is made of.
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0].matmul(matrix_) + in[1];
        return {norm(sum) + sum.matmul(matrix_)};
      },
      R"(
%0 = mm(input0, extern0)
%1, %2 = nimble::rows(%0, input1, extern1, extern2)
%3 = mm(%1, extern0)
%4 = add(%2, %3)
return %4
)");
}

TEST_F(FuseRows, ReadersThatCameBeforeTheNormComeBehindTheKernel) {
  // Recorded, the product lies between the sum and its norm: the kernel runs where the sum was.
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1], product = sum.matmul(matrix_);
        return {product, norm(sum)};
      },
      R"(
%0, %1 = nimble::rows(input0, input1, extern0, extern1)
%2 = mm(%0, extern2)
return %2 %1
)");
}

TEST_F(FuseRows, AKernelRunsBehindTheOneThatNowMakesWhatItReads) {
  // The first sum is made later than it was, where its norm's kernel runs; the other kernel reads it.
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor first = in[0].matmul(matrix_), second = first.matmul(matrix_);
        const at::Tensor sum = first + 1, product = in[1].matmul(matrix_), scaled = second * 2;
        const at::Tensor one = norm(sum) + product;
        return {one, norm(scaled) + sum};
      },
      R"(
%0 = mm(input0, extern0)
%1 = mm(%0, extern0)
%2 = mm(input1, extern0)
%3, %4 = nimble::rows(%0, extern1, extern2, %2)
%5 = nimble::rows(%1, extern1, extern2, %3)
return %4 %5
)");
}

TEST_F(FuseRows, NothingIsMadeAnewEachTimeThatIsMadeOnceOfWeights) {
  const at::Tensor table = torch::randn({2, 4, 6}), other = torch::randn({2, 4, 6});
  expect_drawn([&](const Tensors& in) -> Tensors { return {norm(in[0] + (table + other))}; }, R"(
%0 = nimble::rows(input0, derived0, extern0, extern1)
return %0
)");
}

TEST_F(FuseRows, NothingIsComputedAgainForEachCopy) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {norm(in[0] + in[1].select(0, 0).exp())}; }, R"(
%0 = exp(input1)
%1 = nimble::rows(input0, %0, extern0, extern1)
return %1
)");
}

TEST_F(FuseRows, AloneItStaysWhatItIs) {
  expect_nothing([&](const Tensors& in) -> Tensors { return {norm(in[0]), in[1].softmax(-1)}; });
}

TEST_F(FuseRows, AloneItIsReplacedWhereThatMeasuresFaster) {
  RewriteContext context;
  context.measure = [](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
    return is_call_of(tasks[0], "nimble::rows") ? 1 : 2;
  };
  const Function function = [&](const Tensors& in) -> Tensors { return {norm(in[0])}; };
  EXPECT_EQ(drawn(fused(function, inputs_, context).program), R"(
%0 = nimble::rows(input0, extern0, extern1)
return %0
)");
}

TEST_F(FuseRows, TheDivisionOfTheWorkThatMeasuresFasterIsTaken) {
  RewriteContext context;
  context.measure = [](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
    return is_call_of(tasks[0], "nimble::rows") && value_argument(tasks[0], 2).toInt() == 1 ? 1 : 2;
  };
  const Function function = [&](const Tensors& in) -> Tensors { return {norm(in[0] + in[1])}; };
  const Program program = fused(function, inputs_, context).program;
  ASSERT_EQ(program.tasks.size(), 1u);
  EXPECT_EQ(value_argument(program.tasks[0], 2).toInt(), 1);
}

TEST_F(FuseRows, NotWhereTheTasksMeasureFaster) {
  RewriteContext context;
  context.measure = [](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
    return is_call_of(tasks[0], "nimble::rows") ? 2 : 1;
  };
  const Function function = [&](const Tensors& in) -> Tensors { return {norm(in[0] + in[1])}; };
  EXPECT_TRUE(fused(function, inputs_, context).sites.empty());
}

// In steps of its own, which round otherwise than ATen's kernel.
TEST_F(FuseRows, TheNumbersOfANormAreResultsWhereSomebodyLooks) {
  const auto norm_of_sum = [&](const Tensors& in) {
    return at::native_layer_norm(in[0] + in[1], {6}, weight_, bias_, 1e-5);
  };
  const auto expect_near = [&](const Function& function, const std::string& picture) {
    const Program program = fused(function, inputs_).program;
    EXPECT_EQ(drawn(program), picture);
    expect_same(program, function, inputs_, 1e-5);
  };
  expect_near(
      [&](const Tensors& in) -> Tensors {
        const auto [y, mean, inverse] = norm_of_sum(in);
        return {y, mean, inverse};
      },
      R"(
%0, %1, %2 = nimble::rows(input0, input1, extern0, extern1)
return %0 %1 %2
)");
  expect_near(
      [&](const Tensors& in) -> Tensors {
        const auto [y, mean, inverse] = norm_of_sum(in);
        return {y * inverse};
      },
      R"(
%0 = nimble::rows(input0, input1, extern0, extern1)
return %0
)");
}

TEST_F(FuseRows, NotOverOtherDimensions) {
  expect_nothing([](const Tensors& in) -> Tensors { return {(in[0] + in[1]).softmax(1)}; });
}

TEST_F(FuseRows, NotOverColumnsInMemory) {
  expect_nothing([](const Tensors& in) -> Tensors {
    return {(in[0].transpose(1, 2) + in[1].transpose(1, 2)).softmax(-1)};
  });
}

TEST_F(FuseRows, NotInFloat64) {
  expect_nothing([](const Tensors& in) -> Tensors { return {(in[0] + in[1]).softmax(-1)}; },
                 {torch::randn({4, 6}, torch::kDouble), torch::randn({4, 6}, torch::kDouble)});
}

TEST_F(FuseRows, NotOfRowsThatRegistersCannotHold) {
  const Function function = [](const Tensors& in) -> Tensors { return {(in[0] + in[1]).softmax(-1)}; };
  expect_nothing(function, {torch::randn({2, 8193}), torch::randn({2, 8193})});
  EXPECT_EQ(fused(function, {torch::randn({2, 8192}), torch::randn({2, 8192})}).sites.size(), 1u);
}

TEST_F(FuseRows, NotThroughAView) {
  expect_nothing([&](const Tensors& in) -> Tensors { return {norm((in[0] + in[1]).view({8, 6}))}; });
}

TEST_F(FuseRows, NotAcrossAChangeOfWhatIsRead) {
  const at::Tensor state = torch::randn({2, 4, 6});
  expect_nothing([&](const Tensors& in) -> Tensors {
    const at::Tensor x = state + in[0];
    state.add_(in[1]);
    return {norm(x)};
  });
}

TEST_F(FuseRows, InPlaceWorkIsDoneOutOfPlace) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {norm((in[0] + in[1]).mul_(0.5)).relu_()}; }, R"(
%0 = nimble::rows(input0, input1, extern0, extern1)
return %0
)");
}

TEST_F(FuseRows, WhatNobodyLooksAtIsLeftAsItIs) {
  expect_nothing([&](const Tensors& in) -> Tensors {
    norm(in[0] + in[1]);
    return {in[0] * 2};
  });
}

TEST_F(FuseRows, RandomProgramsGiveEagersBits) {
  using Values = RandomValues;
  const std::vector<Values::Operation> operations = {
      [&](Values& v) { return norm(v.pick()); },
      [](Values& v) { return v.pick().softmax(-1); },
      [&](Values& v) { return norm(v.pick() + v.pick()); },
      [](Values& v) { return (v.pick() * 0.5).softmax(2) + v.pick(); },
      [](Values& v) { return v.pick() + v.pick(); },
      [](Values& v) { return at::where(v.pick() > 0.25, v.pick(), v.pick()); },
      [](Values& v) { return v.pick().sigmoid(); },
      [](Values& v) { return v.pick_own().mul_(0.5); },
      [](Values& v) { return v.pick() + v.pick().select(0, 1); },
      [&](Values& v) { return v.pick().matmul(matrix_); },
  };
  std::size_t fired = 0;
  for (std::uint32_t seed = 0; seed < 80; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      Values values({in[0], in[1], in[0] * in[1]}, /*made=*/2, seed);
      values.grow(14, operations);
      return {values.last(), values[8] * 1};
    };
    SCOPED_TRACE(seed);
    const Forced result = fused(function, inputs_);
    fired += result.sites.size();
    expect_same(result.program, function, inputs_, 0);
  }
  EXPECT_GT(fired, 80u);
}

}  // namespace
}  // namespace nimble
