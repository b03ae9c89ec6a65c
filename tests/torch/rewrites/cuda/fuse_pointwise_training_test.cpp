// fuse_pointwise where a program trains: only with PyTorch's bits, and without running the program.
#include "forced.h"
#include "nimble/core/schedule.h"
#include "nimble/torch/rewrites/uses.h"
#include "random_values.h"

namespace nimble {
namespace {

const RewriteContext kTrainingOnAGpu{.device = c10::Device(c10::kCUDA, 0), .trains = true};

AppliedRewrites trained(const Program& program, const Tensors& inputs) {
  const std::vector<std::string> names = {"default"};
  AppliedRewrites applied = apply_rewrites(program, rewrites_named(names), inputs, kTrainingOnAGpu);
  for (const RewriteReport& report : applied.reports) EXPECT_EQ(report.dropped, "") << report.name;
  EXPECT_TRUE(applied.exact);
  return applied;
}

std::size_t kernels_in(const Program& program) {
  return std::ranges::count_if(
      program.tasks, [](const Task& task) { return task.op.operator_name().name == "nimble::pointwise"; });
}

std::unique_ptr<Executable> bound(const Program& program, const Tensors& inputs, StreamLimit streams) {
  Backend& backend = cpu_backend();
  MemoryDemand memory = memory_demand(program, backend.alignment());
  TaskGraph graph = dependencies(program);
  Schedule schedule = plan(graph, memory.specs, streams);
  return backend.bind(
      {std::make_shared<const Program>(program), std::move(graph), std::move(memory), std::move(schedule)},
      {.example_inputs = inputs});
}

void expect_bits(const Tensors& given, const Tensors& expected) {
  ASSERT_EQ(given.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(given[i].strides(), expected[i].strides());
    EXPECT_TRUE(same_bits(given[i], expected[i])) << "result " << i;
  }
}

class FusePointwiseInTraining : public RewriteTest {
 protected:
  void expect_drawn(const Function& function, const std::string& picture) const {
    const Program program = record(inputs_, function);
    const Program fused = trained(program, inputs_).program;
    EXPECT_EQ(drawn(fused), picture);
    expect_bits(run(fused, inputs_), function(inputs_));
    expect_bits(bound(fused, inputs_, StreamLimit::at_most(1))->replay(inputs_), function(inputs_));
  }
  void expect_unchanged(const Function& function) const {
    const Program program = record(inputs_, function);
    const AppliedRewrites applied = trained(program, inputs_);
    EXPECT_TRUE(applied.reports.empty());
    EXPECT_EQ(to_string(applied.program), to_string(program));
  }
  const Tensors inputs_ = {torch::randn({4, 4}), torch::randn({4, 4})};
};

// Before, as residual networks have it:
//   %0 = mm(input0, input1)
//   %0 = add_(%0, input1)
//   %0 = relu_(%0)
TEST_F(FusePointwiseInTraining, AResidualSumAndItsActivationBecomeOneKernel) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        at::Tensor x = in[0].mm(in[1]);
        x += in[1];
        return {x.relu_()};
      },
      R"(
%0 = mm(input0, input1)
%1 = nimble::pointwise(%0, input1)
return %1
)");
}

TEST_F(FusePointwiseInTraining, SoDoASumOfGradientsAndTheWayBackThroughAnActivation) {
  for (const bool clamped : {false, true}) {
    expect_drawn(
        [=](const Tensors& in) -> Tensors {
          const at::Tensor y = in[0].mm(in[0]), one = in[0].mm(in[1]), other = in[1].mm(in[0]);
          const at::Tensor gradient = one + other;
          return {clamped ? at::hardtanh_backward(gradient, y, 0, 6)
                          : at::threshold_backward(gradient, y, 0)};
        },
        R"(
%0 = mm(input0, input0)
%1 = mm(input0, input1)
%2 = mm(input1, input0)
%3 = nimble::pointwise(%1, %2, %0)
return %3
)");
  }
}

// The gradient of a mean is that of the result, divided, for every element.
TEST_F(FusePointwiseInTraining, SoDoADivisionByANumberAndWhatFollows) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        return {at::threshold_backward(in[0].select(0, 1).expand({4, 4}) / 3, in[1], 0)};
      },
      R"(
%0 = nimble::pointwise(input0, input1)
return %0
)");
}

TEST_F(FusePointwiseInTraining, SoDoCastsMasksAndComparisons) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor mask = in[0] > in[1], scaled = in[0] * 0.3;
        const at::Tensor masked = at::where(mask, scaled, in[1].neg()).abs();
        return {masked.to(at::kHalf).clamp(-1, 1).to(at::kFloat) - in[0]};
      },
      R"(
%0 = nimble::pointwise(input0, input1)
return %0
)");
}

TEST_F(FusePointwiseInTraining, NotWithFunctionsThatTwoCompilersMayRoundDifferently) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> inexact = {
      [](const at::Tensor& x) { return x.exp(); },
      [](const at::Tensor& x) { return x.sigmoid(); },
      [](const at::Tensor& x) { return x.tanh(); },
      [](const at::Tensor& x) { return at::gelu(x); },
      [](const at::Tensor& x) { return at::silu(x); },
      [](const at::Tensor& x) { return x.rsqrt(); },
      [](const at::Tensor& x) { return x.pow(3); },
      [](const at::Tensor& x) { return at::addcmul(x, x, x); },
      [](const at::Tensor& x) { return at::add(x, x, 0.5); },
      [](const at::Tensor& x) { return at::sub(x, x, 2); },
      [](const at::Tensor& x) { return at::sigmoid_backward(x, x); },
      [](const at::Tensor& x) { return at::tanh_backward(x, x); },
  };
  for (std::size_t i = 0; i < inexact.size(); ++i) {
    SCOPED_TRACE(i);
    expect_unchanged([&](const Tensors& in) -> Tensors { return {inexact[i](in[0]).relu()}; });
    expect_unchanged([&](const Tensors& in) -> Tensors { return {inexact[i](in[0].relu())}; });
  }
}

// With a tolerance: the sum of two gradients and the way back through an activation.
TEST_F(FusePointwiseInTraining, WithAToleranceTheWaysBackThroughOtherActivationsToo) {
  using Back = std::function<at::Tensor(const at::Tensor& gradient, const at::Tensor& x)>;
  const std::vector<Back> ways_back = {
      [](const at::Tensor& g, const at::Tensor& x) { return at::silu_backward(g, x); },
      [](const at::Tensor& g, const at::Tensor& x) { return at::gelu_backward(g, x); },
      [](const at::Tensor& g, const at::Tensor& x) { return at::gelu_backward(g, x, "tanh"); },
      [](const at::Tensor& g, const at::Tensor& x) { return at::hardsigmoid_backward(g, x); },
      [](const at::Tensor& g, const at::Tensor& x) { return at::hardswish_backward(g, x); },
      [](const at::Tensor& g, const at::Tensor& x) { return at::leaky_relu_backward(g, x, 0.1, false); },
      [](const at::Tensor& g, const at::Tensor& x) { return at::sigmoid_backward(g, x); },
      [](const at::Tensor& g, const at::Tensor& x) { return at::tanh_backward(g, x); },
  };
  RewriteContext tolerant = kTrainingOnAGpu;
  tolerant.tolerant = true;
  const std::vector<std::string> names = {"fuse_pointwise"};
  for (std::size_t i = 0; i < ways_back.size(); ++i) {
    SCOPED_TRACE(i);
    const Function function = [&](const Tensors& in) -> Tensors {
      const at::Tensor x = in[1].mm(in[0]);
      return {ways_back[i](in[0] + in[1], x)};
    };
    const Program program = record(inputs_, function);
    EXPECT_EQ(kernels_in(trained(program, inputs_).program), 0u);
    const auto applied = apply_rewrites(program, rewrites_named(names), inputs_, tolerant);
    EXPECT_EQ(drawn(applied.program), R"(
%0 = mm(input1, input0)
%1 = nimble::pointwise(input0, input1, %0)
return %1
)");
    expect_same(applied.program, function, inputs_, 1e-5);
  }
}

TEST_F(FusePointwiseInTraining, NotWholeNumbersNorWhatIsComputedOfTruthValues) {
  expect_unchanged([](const Tensors& in) -> Tensors {
    const at::Tensor whole = in[0].argmax(1);
    return {(whole + whole).abs(), at::where(in[0] > 0, in[0] > 1, in[1] > 1)};
  });
}

TEST_F(FusePointwiseInTraining, NotByWayOfDoublePrecisionToHalf) {
  expect_unchanged([](const Tensors& in) -> Tensors { return {in[0].to(at::kDouble).to(at::kHalf)}; });
}

TEST_F(FusePointwiseInTraining, WhatSomebodyElseReadsIsOneMoreResult) {
  // The sum is kept for the backward pass.
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {sum.relu(), sum.mm(in[0])};
      },
      R"(
%0, %1 = nimble::pointwise(input0, input1)
%2 = mm(%0, input0)
return %1 %2
)");
}

TEST_F(FusePointwiseInTraining, WhatIsReturnedIsOneMoreResult) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor sum = in[0] + in[1];
        return {sum, sum.relu()};
      },
      R"(
%0, %1 = nimble::pointwise(input0, input1)
return %0 %1
)");
}

TEST_F(FusePointwiseInTraining, NotWhatIsKeptOutside) {
  Program program =
      record(inputs_, [](const Tensors& in) -> Tensors { return {(in[0] + in[1]).relu().mm(in[0])}; });
  EXPECT_EQ(kernels_in(trained(program, inputs_).program), 1u);
  for (const std::size_t task : {0u, 1u}) {
    Program kept = program;  // a gradient, or what the next part of the program reads
    Buffer& buffer = kept.buffers[first_result(kept.tasks[task]).buffer.index()];
    buffer.kind = BufferKind::kEscaped;
    buffer.outside = torch::empty({4, 4});
    buffer.address = buffer.outside.mutable_data_ptr();
    EXPECT_EQ(kernels_in(trained(kept, inputs_).program), 0u) << task;
  }
}

TEST_F(FusePointwiseInTraining, NotAcrossPartsOrStepsOfAnOptimizer) {
  const Program program =
      record(inputs_, [](const Tensors& in) -> Tensors { return {(in[0] + in[1]).relu()}; });
  EXPECT_EQ(kernels_in(trained(program, inputs_).program), 1u);
  Program in_parts = program, in_steps = program;
  in_parts.tasks[1].part = 1;
  in_steps.tasks[1].step = 1;
  EXPECT_EQ(kernels_in(trained(in_parts, inputs_).program), 0u);
  EXPECT_EQ(kernels_in(trained(in_steps, inputs_).program), 0u);
}

// Made beside the sum that it reads, what a checkpoint computes again would be kept until the way back.
TEST_F(FusePointwiseInTraining, NotWhatTheWayBackComputesAgain) {
  Program program = record(inputs_, [](const Tensors& in) -> Tensors {
    const at::Tensor sum = in[0] + in[1];
    return {sum.mm(in[0]), sum.relu()};
  });
  EXPECT_EQ(kernels_in(trained(program, inputs_).program), 1u);
  program.tasks.back().node = "CheckpointBackward";
  EXPECT_EQ(kernels_in(trained(program, inputs_).program), 0u);
}

TEST_F(FusePointwiseInTraining, NotAcrossAChangeOfWhatIsRead) {
  const at::Tensor weight = torch::randn({4, 4});
  expect_unchanged([&](const Tensors& in) -> Tensors {
    const at::Tensor x = weight * in[0];
    weight.sub_(in[1]);
    return {x.relu()};
  });
}

// ATen lays the gradient out as what the activation gave, a kernel of ours as the gradient that it is given.
TEST_F(FusePointwiseInTraining, NotWhereTheResultWouldBeLaidOutOtherwise) {
  const auto function = [](const at::Tensor& y) -> Function {
    return [=](const Tensors& in) -> Tensors { return {at::threshold_backward(in[0] + in[1], y, 0)}; };
  };
  EXPECT_EQ(kernels_in(trained(record(inputs_, function(inputs_[0])), inputs_).program), 1u);
  expect_unchanged(function(inputs_[0].t().contiguous().t()));
}

TEST_F(FusePointwiseInTraining, NotWhereOneOfSeveralResultsWouldBe) {
  const at::Tensor transposed = inputs_[0].t().contiguous().t();
  expect_unchanged([=](const Tensors& in) -> Tensors {
    const at::Tensor sum = in[0] + in[1];
    return {at::threshold_backward(sum, transposed, 0), sum.mm(in[0])};
  });
}

TEST_F(FusePointwiseInTraining, TasksInPlaceStayThereWhereNothingFuses) {
  expect_unchanged([](const Tensors& in) -> Tensors { return {in[0].mm(in[1]).relu_().mm(in[0])}; });
}

TEST_F(FusePointwiseInTraining, WhatIsComputedTwiceStaysSo) {
  // Checkpoints compute again what would take memory to keep.
  expect_unchanged([](const Tensors& in) -> Tensors {
    return {in[0].mm(in[1]), in[0].mm(in[1]).mm(in[0]).sum()};
  });
}

TEST_F(FusePointwiseInTraining, DrawsStayWhereTheyAreInTheSequence) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor first = at::empty_like(in[0]).bernoulli_(0.5), second = at::empty_like(in[0]).normal_();
    return {(in[0] * first).relu() + second};
  };
  const Program program = record(inputs_, function);
  const Program fused = trained(program, inputs_).program;
  EXPECT_EQ(kernels_in(fused), 1u);
  for (const std::uint64_t seed : {1u, 2u}) {
    torch::manual_seed(seed);
    const Tensors expected = function(inputs_);
    torch::manual_seed(seed);
    expect_bits(bound(fused, inputs_, StreamLimit::at_most(2))->replay(inputs_), expected);
  }
}

TEST_F(FusePointwiseInTraining, NothingIsDoneToTensorsOutsideOrToGenerators) {
  const at::Tensor statistics = torch::zeros({4, 4});
  const Program program = record(inputs_, [&](const Tensors& in) -> Tensors {
    statistics.add_(in[0]);
    return {(at::empty_like(in[0]).normal_() + in[1]).relu()};
  });
  const at::Tensor before = statistics.clone();
  torch::manual_seed(3);
  EXPECT_EQ(kernels_in(trained(program, inputs_).program), 1u);
  const at::Tensor next = torch::randn({2});
  torch::manual_seed(3);
  EXPECT_TRUE(at::equal(next, torch::randn({2})));
  EXPECT_TRUE(at::equal(statistics, before));
  EXPECT_EQ(statistics._version(), before._version() + 1);  // that of the recorded run alone
}

// Two residual blocks, as torchvision writes them, with a loss, a way back and an update of the weights.
class ResidualStep {
 public:
  ResidualStep() {
    torch::manual_seed(1);
    for (int i = 0; i < 4; ++i) weights_.push_back((torch::randn({8, 8}) * 0.3).requires_grad_());
  }

  Tensors operator()(const Tensors& in) const {
    at::Tensor x = in[0].matmul(weights_[0]).relu_();
    for (const int block : {1, 2}) {
      at::Tensor y = x.matmul(weights_[block]);
      y += x;
      x = y.relu_();
    }
    const at::Tensor loss = (x.mean(0).matmul(weights_[3]) - in[1]).square().mean();
    const Tensors gradients = torch::autograd::grad({loss}, weights_);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i].sub_(gradients[i] * 0.1);
    return {loss.detach()};
  }

  const Tensors& weights() const { return weights_; }

 private:
  Tensors weights_;
};

TEST_F(FusePointwiseInTraining, ThirtyStepsKeepEagersBits) {
  const at::AutoGradMode with_grad(true);
  const auto batch = [](int number) -> Tensors {
    torch::manual_seed(number);
    return {torch::randn({6, 8}), torch::randn({8})};
  };
  for (const StreamLimit streams : {StreamLimit::at_most(1), StreamLimit::at_most(3)}) {
    const ResidualStep eager, replayed;
    eager(batch(0));
    const Program program = record(batch(0), replayed);
    const AppliedRewrites applied = trained(program, batch(0));
    EXPECT_GE(kernels_in(applied.program), 4u) << to_string(applied.program);  // both ways, in both blocks
    const auto executable = bound(applied.program, batch(0), streams);
    for (int number = 1; number <= 30; ++number) {
      expect_bits(executable->replay(batch(number)), eager(batch(number)));
      expect_bits(replayed.weights(), eager.weights());
    }
  }
}

TEST_F(FusePointwiseInTraining, RandomProgramsGiveEagersBits) {
  using Values = RandomValues;
  at::Tensor state;  // outside
  const auto in_place = [](at::Tensor&) { return at::Tensor(); };
  const std::vector<Values::Operation> operations = {
      [](Values& v) { return v.pick().relu(); },
      [](Values& v) { return v.pick() + v.pick(); },
      [](Values& v) { return v.pick() * v.pick(); },
      [](Values& v) { return at::sub(v.pick(), v.pick(), v.number_below(2) ? 1 : 0.5); },
      [](Values& v) { return v.pick().sigmoid(); },
      [](Values& v) { return at::where(v.pick() > 0.25, v.pick(), v.pick()); },
      [](Values& v) { return at::threshold_backward(v.pick(), v.pick(), 0); },
      [](Values& v) { return at::hardtanh_backward(v.pick(), v.pick(), -0.5, 0.5); },
      [&](Values& v) { return in_place(v.pick_own().mul_(0.5)); },
      [&](Values& v) { return in_place(v.pick_own().add_(v.pick())); },
      [&](Values& v) { return in_place(v.pick_own().relu_()); },
      [&](Values& v) { return in_place(state.add_(v.pick())); },
      [&](Values& v) { return state * v.pick(); },
      [](Values& v) { return v.pick().t() / 3; },
  };
  std::size_t fused_kernels = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Function function = [&](const Tensors& in) -> Tensors {
      Values values({in[0], in[1], in[0].mm(in[1])}, /*made=*/2, seed);
      values.grow(16, operations);
      return {values.last(), values[2] * 1};
    };
    state = torch::randn({4, 4});
    const at::Tensor outside = state, at_first = state.clone();
    const Program program = record(inputs_, function);
    const Program fused = trained(program, inputs_).program;
    fused_kernels += kernels_in(fused);
    const Tensors fresh = {torch::randn({4, 4}), torch::randn({4, 4})};
    outside.copy_(at_first);
    Tensors given = bound(fused, inputs_, StreamLimit::at_most(2))->replay(fresh);
    given.push_back(outside.clone());
    state = at_first.clone();
    Tensors expected = function(fresh);
    expected.push_back(state);
    expect_bits(given, expected);
  }
  EXPECT_GE(fused_kernels, 100u);
}

}  // namespace
}  // namespace nimble
