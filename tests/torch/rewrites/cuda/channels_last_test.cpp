#include <c10/util/strides.h>
#include <torch/library.h>

#include "forced.h"
#include "nimble/core/error.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

// Somebody's own operator, which was only ever called with contiguous images.
at::Tensor halve_contiguous(const at::Tensor& x) {
  TORCH_CHECK(x.is_contiguous(), "only contiguous images");
  return x / 2;
}

TORCH_LIBRARY(nimble_channels_last_test, library) { library.def("halve_contiguous(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(nimble_channels_last_test, CPU, library) {
  library.impl("halve_contiguous", halve_contiguous);
}

at::Tensor halve(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("nimble_channels_last_test::halve_contiguous", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

class ChannelsLast : public RewriteTest {
 protected:
  const Tensors inputs_ = {torch::randn({2, 4, 5, 5})};
  const at::Tensor weight_ = torch::randn({4, 4, 3, 3}), scale_ = torch::randn({4});

  at::Tensor convolve(const at::Tensor& x) const { return at::conv2d(x, weight_, {}, 1, 1); }
};

const TensorRef& first_read_of(const Program& program, const std::string& op) {
  for (const Task& task : program.tasks) {
    if (task.op.operator_name().name == op) return std::get<TensorRef>(task.arguments[0]);
  }
  throw std::out_of_range(op);
}

TEST_F(ChannelsLast, IsKeptByWhatFollowsAConvolution) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {convolve(convolve(in[0]).relu()).sigmoid()};
  };
  const Forced result = forced(function, inputs_, kChannelsLast);
  EXPECT_EQ(result.sites.size(), 2u);
  EXPECT_TRUE(is_channels_last(first_read_of(result.program, "aten::relu")));
  expect_same(result.program, function, inputs_);
}

//  input ─ conv ─ relu ─ … ─ result   ──▶   input ─ conv ─ relu ─ … ─ copy ─ result
//
// The first convolution reads any layout, what follows keeps that of the weights, and the result is as it
// was.
TEST_F(ChannelsLast, ConvertsOnlyAtTheEdges) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {convolve(convolve(convolve(in[0]).relu()).relu()).relu()};
  };
  const Forced result = forced(function, inputs_, kChannelsLast);
  EXPECT_EQ(drawn(result.program), R"(
%0 = convolution(input0, derived0)
%1 = relu(%0)
%2 = convolution(%1, derived1)
%3 = relu(%2)
%4 = convolution(%3, derived2)
%5 = relu(%4)
%6 = copy_(%6, %5)
return %6
)");
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(is_channels_last(first_result(result.program.tasks[i]))) << i;
  }
  expect_same(result.program, function, inputs_);
}

TEST_F(ChannelsLast, NotAWeightThatTheProgramWrites) {
  const at::Tensor weight = weight_.clone();
  const Function function = [&](const Tensors& in) -> Tensors {
    weight.mul_(1);
    return {at::conv2d(in[0], weight)};
  };
  EXPECT_TRUE(forced(function, inputs_, kChannelsLast).sites.empty());
}

TEST_F(ChannelsLast, NotAWeightThatIsComputedFromTheInput) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::conv2d(in[0], in[0].slice(2, 0, 3).slice(3, 0, 3).exp())};
  };
  EXPECT_TRUE(forced(function, inputs_, kChannelsLast).sites.empty());
}

TEST_F(ChannelsLast, NotOtherConvolutions) {
  const at::Tensor filters = torch::randn({4, 1, 3, 3}), lines = torch::randn({4, 4, 3}),
                   wide = weight_.to(at::kDouble);
  const Function depthwise = [&](const Tensors& in) -> Tensors {
    return {at::conv2d(in[0], filters, {}, {1, 1}, {1, 1}, {1, 1}, 4)};
  };
  const Function transposed = [&](const Tensors& in) -> Tensors {
    return {at::conv_transpose2d(in[0], weight_)};
  };
  const Function over_lines = [&](const Tensors& in) -> Tensors {
    return {at::conv1d(in[0].flatten(2), lines)};
  };
  const Function in_double = [&](const Tensors& in) -> Tensors {
    return {at::conv2d(in[0].to(at::kDouble), wide)};
  };
  for (const Function& function : {depthwise, transposed, over_lines, in_double}) {
    EXPECT_TRUE(forced(function, inputs_, kChannelsLast).sites.empty());
  }
}

// The convolution reads a copy; everybody else reads the weight as it lies.
TEST_F(ChannelsLast, AWeightThatOthersReadTooStaysAsItLies) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {convolve(in[0]), halve(weight_) + in[0].sum(), weight_.view(-1) * 2};
  };
  const Forced result = forced(function, inputs_, kChannelsLast);
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, function, inputs_);
}

TEST_F(ChannelsLast, PartsOfAnImageMayBeWritten) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = convolve(in[0]);
    y.slice(1, 0, 2).mul_(2);
    y.select(2, 1).zero_();
    y.slice(0, 0, 1).slice(3, 2, 4).add_(in[0].slice(0, 1, 2).slice(3, 1, 3));
    return {convolve(y).relu(), y.flatten(1).sin()};
  };
  const Forced result = forced(function, inputs_, kChannelsLast);
  EXPECT_EQ(result.sites.size(), 2u);
  expect_same(result.program, function, inputs_);
}

// As rows of one another, say; then all stays as it was recorded.
TEST_F(ChannelsLast, CannotBeWhereAPartIsWrittenThatIsNoSliceThen) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = convolve(in[0]);
    y.view(-1).slice(0, 3, 60).zero_();
    return {y + 1};
  };
  EXPECT_THROW(forced(function, inputs_, kChannelsLast), Error);
}

TEST_F(ChannelsLast, NotInTraining) {
  const Program program =
      record(inputs_, [&](const Tensors& in) -> Tensors { return {convolve(in[0]).relu()}; });
  const Rewrite* const rewrite = &kChannelsLast;
  const AppliedRewrites applied =
      apply_rewrites(program, {&rewrite, 1}, inputs_, {.device = c10::kCUDA, .trains = true});
  EXPECT_TRUE(applied.reports.empty());
  EXPECT_EQ(drawn(applied.program), drawn(program));
}

// On a GPU a group norm refuses any other layout than the one that torch.group_norm gives it.
TEST_F(ChannelsLast, NotForAGroupNorm) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {convolve(at::group_norm(convolve(in[0]), 2, scale_, scale_))};
  };
  const Forced result = forced(function, inputs_, kChannelsLast);
  EXPECT_EQ(result.sites.size(), 2u);
  EXPECT_TRUE(is_contiguous(first_read_of(result.program, "aten::native_group_norm")));
  expect_same(result.program, function, inputs_);
}

TEST_F(ChannelsLast, NotForOperatorsThatNobodyKnows) {
  const Function function = [&](const Tensors& in) -> Tensors {
    return {convolve(halve(convolve(in[0]))).relu()};
  };
  const Forced result = forced(function, inputs_, kChannelsLast);
  EXPECT_EQ(result.sites.size(), 2u);
  EXPECT_TRUE(is_contiguous(first_read_of(result.program, "nimble_channels_last_test::halve_contiguous")));
  EXPECT_TRUE(is_channels_last(first_read_of(result.program, "aten::relu")));
  expect_same(result.program, function, inputs_);
}

}  // namespace
}  // namespace nimble
