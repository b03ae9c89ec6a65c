#include <ATen/core/Reduction.h>

#include "fuse_rows.h"
#include "nimble/torch/rewrites/uses.h"
#include "random_values.h"

namespace nimble {
namespace {

const RewriteContext kOursIsFaster{
    .measure = [](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
      return is_call_of(tasks[0], "nimble::rows") ? 1 : 2;
    }};

class FuseRowReductions : public FuseRows {
 protected:
  // As most language models have it.
  at::Tensor rms_norm(const at::Tensor& x) const {
    return x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + 1e-6) * weight_;
  }
};

TEST_F(FuseRowReductions, AnRmsNormIsOneKernel) {
  expect_drawn([&](const Tensors& in) -> Tensors { return {rms_norm(in[0])}; }, R"(
%0 = nimble::rows(input0, extern0)
return %0
)");
}

TEST_F(FuseRowReductions, AnRmsNormTakesInTheResidualSumWhichIsWrittenAsWell) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {rms_norm(sum).matmul(matrix_) + sum};
      },
      R"(
%0, %1 = nimble::rows(input0, input1, extern0)
%2 = mm(%1, extern1)
%3 = add(%2, %0)
return %3
)");
}

TEST_F(FuseRowReductions, CastsAroundAnRmsNormAreTakenIn) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor wide = in[0].to(at::kHalf).to(at::kFloat);
        return {rms_norm(wide).to(at::kHalf)};
      },
      R"(
%0 = nimble::rows(input0, extern0)
return %0
)");
}

// The norm is expanded to the shape of the rows.
TEST_F(FuseRowReductions, ANormalizationIsOneKernel) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        return {torch::nn::functional::normalize(in[0] + in[1],
                                                 torch::nn::functional::NormalizeFuncOptions().dim(-1))};
      },
      R"(
%0 = nimble::rows(input0, input1)
return %0
)");
}

TEST_F(FuseRowReductions, ReductionsMayBeTheEnd) {
  for (const std::function<at::Tensor(const at::Tensor&)>& reduce :
       std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           [](const at::Tensor& x) { return x.sum(-1); },
           [](const at::Tensor& x) { return x.mean(2, true); },
           [](const at::Tensor& x) { return x.amax(-1); },
           [](const at::Tensor& x) { return x.amin(-1, true); },
           [](const at::Tensor& x) { return x.norm(2, -1); },
           [](const at::Tensor& x) { return at::linalg_vector_norm(x, 1, -1); },
           [](const at::Tensor& x) {
             return x.mean(at::IntArrayRef({-1, -2}));
           },
           [](const at::Tensor& x) { return x.sum(); },
           [](const at::Tensor& x) { return x.mean(); },
       }) {
    expect_drawn([&](const Tensors& in) -> Tensors { return {reduce((in[0] - in[1]).abs())}; }, R"(
%0 = nimble::rows(input0, input1)
return %0
)");
  }
}

TEST_F(FuseRowReductions, ALossOfEverythingIsOneKernel) {
  const std::vector<std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>> losses = {
      [](const at::Tensor& x, const at::Tensor& y) { return at::mse_loss(x.sigmoid(), y); },
      [](const at::Tensor& x, const at::Tensor& y) { return at::l1_loss(x.sigmoid(), y); },
      [](const at::Tensor& x, const at::Tensor& y) { return at::smooth_l1_loss(x.sigmoid(), y); },
      [](const at::Tensor& x, const at::Tensor& y) { return at::huber_loss(x.sigmoid(), y); },
  };
  for (std::size_t i = 0; i < losses.size(); ++i) {
    SCOPED_TRACE(i);
    expect_drawn([&](const Tensors& in) -> Tensors { return {losses[i](in[0], in[1])}; }, R"(
%0 = nimble::rows(input0, input1)
return %0
)");
  }
}

// Written out in steps it rounds otherwise than ATen's own.
TEST_F(FuseRowReductions, SoIsACrossEntropyWithWhatIsBeforeIt) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor logits = in[0] * 2, wanted = in[1].sigmoid();
    return {at::binary_cross_entropy_with_logits(logits, wanted)};
  };
  const Forced result = fused(function, inputs_);
  EXPECT_EQ(drawn(result.program), R"(
%0 = nimble::rows(input0, input1)
return %0
)");
  expect_same(result.program, function, inputs_, 1e-6);
}

TEST_F(FuseRowReductions, ALossForEachRowIsOneKernel) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        return {at::mse_loss(in[0], in[1], at::Reduction::None).mean(-1).sqrt()};
      },
      R"(
%0 = nimble::rows(input0, input1)
return %0
)");
}

// Two norms and a sum.
TEST_F(FuseRowReductions, ACosineSimilarityIsOneKernel) {
  expect_drawn([](const Tensors& in) -> Tensors { return {at::cosine_similarity(in[0], in[1], -1)}; }, R"(
%0 = nimble::rows(input0, input1, const0)
return %0
)");
}

TEST_F(FuseRowReductions, ALogSoftmaxTakesInItsScale) {
  expect_drawn([](const Tensors& in) -> Tensors { return {(in[0] / 0.7).log_softmax(-1) * in[1]}; }, R"(
%0 = nimble::rows(input0, input1)
return %0
)");
}

TEST_F(FuseRowReductions, WhatIsASoftmaxByHandIsOneKernel) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor powers = (in[0] - in[0].amax(-1, true)).exp();
        return {powers / powers.sum(-1, true)};
      },
      R"(
%0 = nimble::rows(input0)
return %0
)");
}

TEST_F(FuseRowReductions, WhatIsALayerNormByHandIsOneKernel) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0] + in[1], rest = x - x.mean(-1, true);
        return {rest / (rest.pow(2).mean(-1, true) + 1e-5).sqrt() * weight_ + bias_};
      },
      R"(
%0 = nimble::rows(input0, input1, extern0, extern1)
return %0
)");
}

TEST_F(FuseRowReductions, NumbersMayBeResultsBesideRows) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0] * in[1], mean = x.mean(-1, true);
        return {mean, x - mean};
      },
      R"(
%0, %1 = nimble::rows(input0, input1)
return %0 %1
)");
}

TEST_F(FuseRowReductions, NumbersMayGetTheirDimensionBackByAView) {
  expect_drawn(
      [](const Tensors& in) -> Tensors { return {in[0] - in[0].mean(-1).unsqueeze(-1).expand_as(in[0])}; },
      R"(
%0 = nimble::rows(input0)
return %0
)");
}

TEST_F(FuseRowReductions, NumbersThatOthersNeedTooAreWrittenAsWell) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0] + in[1], sums = x.sum(-1);
        return {sums.matmul(at::ones({4})), sums.exp().matmul(at::ones({4}))};
      },
      R"(
%0 = nimble::rows(input0, input1)
%1 = mv(%0, const0)
%2 = exp(%0)
%3 = mv(%2, const1)
return %1 %3
)");
}

TEST_F(FuseRowReductions, WorkThatFitsBesideSomethingSlowerStaysThere) {
  // The sum runs beside the products; its kernel does not wait for them.
  expect_drawn(
      [&](const Tensors& in) -> Tensors {
        const at::Tensor slow = in[0].matmul(matrix_).matmul(matrix_);
        return {slow * in[1].exp().sum(-1, true)};
      },
      R"(
%0 = mm(input0, extern0)
%1 = mm(%0, extern0)
%2 = nimble::rows(input1)
%3 = mul(%1, %2)
return %3
)");
}

TEST_F(FuseRowReductions, AloneTheyStayWhatTheyAre) {
  const Function function = [](const Tensors& in) -> Tensors { return {in[0].mean(-1), in[1].sum()}; };
  expect_nothing(function);
  EXPECT_TRUE(fused(function, inputs_, kOursIsFaster).sites.empty());
}

// PyTorch has two kernels for it.
TEST_F(FuseRowReductions, ALossAloneIsReplacedWhereThatMeasuresFaster) {
  const Function function = [](const Tensors& in) -> Tensors { return {at::mse_loss(in[0], in[1])}; };
  expect_nothing(function);
  EXPECT_EQ(fused(function, inputs_, kOursIsFaster).sites.size(), 1u);
}

TEST_F(FuseRowReductions, NotOverOtherDimensions) {
  expect_nothing([](const Tensors& in) -> Tensors { return {(in[0] + in[1]).sum(1)}; });
  expect_nothing([](const Tensors& in) -> Tensors {
    return {(in[0] + in[1]).mean(at::IntArrayRef({0, 2}))};
  });
}

TEST_F(FuseRowReductions, NotOverColumnsInMemory) {
  expect_nothing(
      [](const Tensors& in) -> Tensors { return {(in[0].transpose(1, 2) + in[1].transpose(1, 2)).sum(-1)}; });
}

TEST_F(FuseRowReductions, NotWhatRegistersCannotHold) {
  const Function rows = [](const Tensors& in) -> Tensors { return {(in[0] + in[1]).sum(-1)}; };
  expect_nothing(rows, {torch::randn({2, 8193}), torch::randn({2, 8193})});
  const Function whole = [](const Tensors& in) -> Tensors { return {(in[0] + in[1]).mean()}; };
  expect_nothing(whole, {torch::randn({2, 4097}), torch::randn({2, 4097})});
  EXPECT_EQ(fused(whole, {torch::randn({2, 4096}), torch::randn({2, 4096})}).sites.size(), 1u);
}

TEST_F(FuseRowReductions, NotOfWholeNumbersNorInFloat64) {
  const Function function = [](const Tensors& in) -> Tensors { return {(in[0] + in[1]).sum(-1)}; };
  expect_nothing(function, {at::arange(24).view({4, 6}), at::arange(24).view({4, 6})});
  expect_nothing(function, {torch::randn({4, 6}, torch::kDouble), torch::randn({4, 6}, torch::kDouble)});
  expect_nothing([](const Tensors& in) -> Tensors { return {(in[0] > in[1]).sum(-1)}; });
  expect_nothing([](const Tensors& in) -> Tensors { return {(in[0] + in[1]).sum(-1, false, at::kDouble)}; });
}

TEST_F(FuseRowReductions, NotWhereARowsNumberIsReadAlongAColumn) {
  // One number for each row, added to the columns of a square.
  const Tensors square = {torch::randn({6, 6}), torch::randn({6, 6})};
  const Function function = [](const Tensors& in) -> Tensors { return {in[0] + in[0].sum(-1)}; };
  expect_nothing(function, square);
}

TEST_F(FuseRowReductions, NotAcrossAChangeOfWhatIsRead) {
  const at::Tensor state = torch::randn({2, 4, 6});
  expect_nothing([&](const Tensors& in) -> Tensors {
    const at::Tensor x = state + in[0];
    state.add_(in[1]);
    return {x.sum(-1)};
  });
}

TEST_F(FuseRowReductions, NotWhereAViewOfTheNumbersIsChanged) {
  expect_nothing([](const Tensors& in) -> Tensors {
    const at::Tensor means = in[0].mean(-1, true);
    means.select(1, 0).zero_();
    return {in[0] - means};
  });
}

TEST_F(FuseRowReductions, NotInTrainingUnlessResultsMayRoundOtherwise) {
  const Function function = [&](const Tensors& in) -> Tensors { return {rms_norm(in[0])}; };
  EXPECT_TRUE(fused(function, inputs_, {.trains = true}).sites.empty());
  EXPECT_EQ(fused(function, inputs_, {.trains = true, .tolerant = true}).sites.size(), 1u);
}

TEST_F(FuseRowReductions, InPlaceWorkIsDoneOutOfPlace) {
  expect_drawn(
      [&](const Tensors& in) -> Tensors { return {in[0] * in[0].pow(2).mean(-1, true).add_(1e-6).rsqrt_()}; },
      R"(
%0 = nimble::rows(input0)
return %0
)");
}

TEST_F(FuseRowReductions, RandomProgramsGiveEagersBits) {
  using Values = RandomValues;
  const std::vector<Values::Operation> operations = {
      [&](Values& v) { return rms_norm(v.pick()); },
      [](Values& v) {
        const at::Tensor x = v.pick();
        return x - x.mean(-1).unsqueeze(-1);
      },
      [](Values& v) { return v.pick() * (v.pick() * v.pick()).sum(-1, true); },
      [](Values& v) { return v.pick().log_softmax(-1); },
      [](Values& v) { return at::clamp(v.pick(), -4, 4).exp() + at::mse_loss(v.pick(), v.pick()); },
      [](Values& v) { return v.pick() / (v.pick().norm(2, -1, true) + 1); },
      [](Values& v) { return v.pick().amax(-1, true).sigmoid() + v.pick(); },
      [](Values& v) { return v.pick() + v.pick(); },
      [&](Values& v) { return norm(v.pick()); },
      [](Values& v) { return v.pick_own().mul_(0.5); },
      [](Values& v) { return v.pick() + v.pick().select(0, 1).mean(-1, true); },
      [&](Values& v) { return v.pick().matmul(matrix_); },
  };
  std::size_t fired = 0;
  for (std::uint32_t seed = 0; seed < 80; ++seed) {
    const Function function = [&](const Tensors& in) -> Tensors {
      Values values({in[0], in[1], in[0] * in[1]}, /*made=*/2, seed);
      values.grow(12, operations);
      return {norm(values.last()), values[8] * 1};
    };
    SCOPED_TRACE(seed);
    const Forced result = fused(function, inputs_);
    fired += result.sites.size();
    expect_same(result.program, function, inputs_, 0);
  }
  EXPECT_GT(fired, 160u);
}

// Each counts as often as it is there.
TEST_F(FuseRowReductions, SumsOfNumbersThatAreSpreadAreThoseOfAll) {
  const Tensors inputs = {torch::randn({4, 1}), torch::randn({})};
  for (
      const Function& function : std::vector<Function>{
          [](const Tensors& in) -> Tensors {
            return {(in[0] * 2).expand({4, 8}).sum(-1)};
          },
          [](const Tensors& in) -> Tensors { return {(in[1] * 3).expand({8}).norm()}; },
          [](const Tensors& in) -> Tensors {
            return {at::mse_loss((in[0] * 2).expand({4, 8}), (in[0] + 1).expand({4, 8}), at::Reduction::Sum)};
          }}) {
    expect_same(fused(function, inputs).program, function, inputs);
  }
}

}  // namespace
}  // namespace nimble
