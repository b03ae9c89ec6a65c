#include "nimble/torch/split.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "nimble/torch/dispatch_mode.h"
#include "nimble/torch/program_builder.h"
#include "nimble/torch/record_error.h"

namespace nimble {
namespace {

using Tensors = std::vector<at::Tensor>;

// x → exp ─┬─ | pause | ─ add → returned
//          └─ neg → dropped
Program program_with_a_pause(const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  ProgramBuilder builder(Tensors{x}, ProgramBuilder::OnRefusal::kThrow);
  at::Tensor result;
  {
    const DispatchModeGuard mode(builder);
    const at::Tensor e = x.exp();
    e.neg();
    builder.pause();
    x.sin();  // the host's own
    builder.resume();
    result = e + x;
  }
  return builder.finish(Tensors{result});
}

TEST(Split, EachPartHasItsOwnTasks) {
  const Program program = program_with_a_pause(torch::randn({4}));
  const auto parts = split_into_parts(program);
  ASSERT_EQ(parts.size(), 2u);
  ASSERT_EQ(parts[0].tasks.size(), 2u);
  ASSERT_EQ(parts[1].tasks.size(), 1u);
  EXPECT_EQ(parts[0].tasks[0].op.operator_name().name, "aten::exp");
  EXPECT_EQ(parts[1].tasks[0].op.operator_name().name, "aten::add");
}

TEST(Split, WhatCrossesHasMemoryThatOutlivesTheParts) {
  const auto parts = split_into_parts(program_with_a_pause(torch::randn({4})));
  const BufferId crossing = parts[0].tasks[0].writes[0].buffer;
  const BufferId dropped = parts[0].tasks[1].writes[0].buffer;
  EXPECT_EQ(parts[0].buffer(crossing).kind, BufferKind::kEscaped);
  EXPECT_EQ(parts[0].buffer(crossing).address, parts[1].buffer(crossing).address);
  EXPECT_NE(parts[0].buffer(crossing).address, nullptr);
  EXPECT_EQ(parts[0].buffer(dropped).kind, BufferKind::kInternal);
}

TEST(Split, ResultsBelongToThePartBehindWhichTheyAreWanted) {
  const auto parts = split_into_parts(program_with_a_pause(torch::randn({4})));
  EXPECT_TRUE(parts[0].outputs.empty());
  ASSERT_EQ(parts[1].outputs.size(), 1u);
  EXPECT_TRUE(parts[1].buffer(parts[1].outputs[0].ref.buffer).returned);
}

// Two inputs that are added have one and the same gradient.
TEST(Split, AResultThatIsAnEarlierOneIsSoAmongThoseOfItsPart) {
  Program program = program_with_a_pause(torch::randn({4}));
  const Output later = program.outputs.at(0);
  Output earlier = later, again = later, elsewhere = later;
  earlier.part = 0;
  again.same_as_output = 1;
  elsewhere.same_as_output = 0;
  program.outputs = {earlier, later, again, elsewhere};
  const auto parts = split_into_parts(program);
  ASSERT_EQ(parts[0].outputs.size(), 1u);
  ASSERT_EQ(parts[1].outputs.size(), 3u);
  EXPECT_EQ(parts[1].outputs[1].same_as_output, 0u);
  EXPECT_EQ(parts[1].outputs[2].same_as_output, std::nullopt);
}

Program draws_around_a_pause(bool set_back) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(0);
  ProgramBuilder builder({}, ProgramBuilder::OnRefusal::kThrow);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state().clone();
  at::Tensor first, second;
  {
    const DispatchModeGuard mode(builder);
    first = torch::rand({3});
    builder.pause();
    builder.resume();
    if (set_back) generator.set_state(before);
    second = torch::rand({3});
  }
  return builder.finish(Tensors{first, second});
}

TEST(Split, APartGoesOnInTheSequenceWhereTheOneBeforeEnded) {
  const auto parts = split_into_parts(draws_around_a_pause(false));
  EXPECT_EQ(parts[0].tasks[0].draw->position, 0u);
  EXPECT_EQ(parts[0].generators[0].position, 1u);
  EXPECT_EQ(parts[1].tasks[0].draw->position, 0u);
  EXPECT_EQ(parts[1].generators[0].position, 1u);
}

TEST(Split, RefusesAPartThatDrawsAgainWhatAnEarlierOneDrew) {
  const Program program = draws_around_a_pause(true);
  EXPECT_THROW(split_into_parts(program), RecordError);
}

}  // namespace
}  // namespace nimble
