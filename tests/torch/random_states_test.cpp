#include "nimble/torch/random_states.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "nimble/torch/operator_facts.h"

namespace nimble {
namespace {

constexpr std::uint32_t kSeed = 0;

// attention ─ seed ─┐           the forward pass, in part `forward`
//                   attention_backward   the way back, in part 1
Program attention(std::size_t forward, double dropout, c10::Device seeds_on = c10::kCPU) {
  const TensorRef seed{.buffer = BufferId{kSeed}, .sizes = {}, .strides = {}, .dtype = at::kLong};
  const auto call = [&](const char* name, std::size_t part) {
    Task task{.op = find_operator(name), .arguments = {}};
    for (const auto& argument : task.op.schema().arguments()) {
      task.arguments.emplace_back(c10::IValue());
      if (argument.name() == "philox_seed") task.arguments.back() = seed;
      if (argument.name() == "dropout_p") task.arguments.back() = c10::IValue(dropout);
    }
    task.part = part;
    return task;
  };
  Task there = call("aten::_scaled_dot_product_efficient_attention", forward);
  there.writes = {seed};
  Task back = call("aten::_scaled_dot_product_efficient_attention_backward", 1);
  back.reads = {seed};
  return {.buffers = {Buffer{.bytes = 8, .device = seeds_on}},
          .tasks = {there, back},
          .inputs = {},
          .outputs = {},
          .parts = 2};
}

TEST(RandomStates, OneFromAnotherPartOfTheProgramIsRefusedAndToldHowToDoWithout) {
  const auto refusal = takes_random_state_from_elsewhere(attention(/*forward=*/0, /*dropout=*/0.1));
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->message().find("_scaled_dot_product_efficient_attention_backward"), std::string::npos);
  EXPECT_NE(refusal->message().find("Compile the whole training step"), std::string::npos);
}

TEST(RandomStates, OneFromOutsideIsRefused) {
  Program program = attention(1, 0.1);
  program.tasks.erase(program.tasks.begin());
  program.buffers[kSeed].kind = BufferKind::kInput;
  EXPECT_TRUE(takes_random_state_from_elsewhere(program));
}

TEST(RandomStates, OneThatTheSamePartMadeIsThereWhenItIsRead) {
  EXPECT_FALSE(takes_random_state_from_elsewhere(attention(1, 0.1)));
}

TEST(RandomStates, WithoutDropoutNobodyReadsIt) {
  EXPECT_FALSE(takes_random_state_from_elsewhere(attention(0, 0.0)));
}

TEST(RandomStates, OnTheGpuItCanBeRead) {
  EXPECT_FALSE(takes_random_state_from_elsewhere(attention(0, 0.1, c10::Device(c10::kCUDA, 0))));
}

}  // namespace
}  // namespace nimble
