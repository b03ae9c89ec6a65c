#include "nimble/torch/dependencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "nimble/core/reachability.h"
#include "nimble/core/schedule.h"
#include "recorded.h"

namespace nimble {
namespace {

bool ordered(const Program& program, std::uint32_t a, std::uint32_t b) {
  return Reachability(dependencies(program)).happens_before(TaskId{a}, TaskId{b});
}

//  relu ─┐
//        add
//  tanh ─┘
TEST(Dependencies, ReadersOfOneInputAreIndependent) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    const at::Tensor left = torch::relu(in[0]);
    const at::Tensor right = torch::tanh(in[0]);
    return {left + right};
  });
  ASSERT_EQ(operators(program), (std::vector<std::string>{"aten::relu", "aten::tanh", "aten::add"}));
  EXPECT_FALSE(ordered(program, 0, 1));
  EXPECT_TRUE(ordered(program, 0, 2));
  EXPECT_TRUE(ordered(program, 1, 2));
}

TEST(Dependencies, AWriteWaitsForEarlierReaders) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0].clone();
    at::Tensor y = x.relu();
    x.mul_(2);
    return {x, y};
  });
  ASSERT_EQ(operators(program), (std::vector<std::string>{"aten::clone", "aten::relu", "aten::mul_"}));
  EXPECT_TRUE(ordered(program, 1, 2));
}

TEST(Dependencies, TwoHalvesWrittenByTwoTasksStayIndependent) {
  const Program program = record({torch::randn({2, 6})}, [](const Tensors& in) -> Tensors {
    at::Tensor out = torch::empty({2, 6});
    out.slice(1, 0, 3).copy_(in[0].slice(1, 0, 3).relu());
    out.slice(1, 3, 6).copy_(in[0].slice(1, 3, 6).tanh());
    return {out.exp()};
  });
  ASSERT_EQ(operators(program), (std::vector<std::string>{"aten::relu", "aten::copy_", "aten::tanh",
                                                          "aten::copy_", "aten::exp"}));
  EXPECT_FALSE(ordered(program, 1, 3));
  EXPECT_TRUE(ordered(program, 1, 4));
  EXPECT_TRUE(ordered(program, 3, 4));
}

TEST(Dependencies, ViewsSeeWritesThroughTheBase) {
  const Program program = record({torch::randn({4, 4})}, [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0].clone();
    at::Tensor row = x.t()[1];
    x.mul_(3);
    return {row.exp()};
  });
  ASSERT_EQ(operators(program), (std::vector<std::string>{"aten::clone", "aten::mul_", "aten::exp"}));
  EXPECT_TRUE(ordered(program, 1, 2));
}

TEST(Dependencies, RandomTasksOnOneCpuGeneratorAreChained) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    return {torch::rand_like(in[0]), torch::rand_like(in[0])};
  });
  ASSERT_EQ(program.tasks.size(), 2u);
  EXPECT_TRUE(ordered(program, 0, 1));
}

TEST(Dependencies, RandomTasksOnDifferentGeneratorsAreNot) {
  auto one = at::make_generator<at::CPUGeneratorImpl>(1), two = at::make_generator<at::CPUGeneratorImpl>(2);
  const Program program = record({torch::zeros({4})}, [&](const Tensors& in) -> Tensors {
    return {in[0].clone().uniform_(0, 1, one), in[0].clone().uniform_(0, 1, two)};
  });
  ASSERT_EQ(operators(program),
            (std::vector<std::string>{"aten::clone", "aten::uniform_", "aten::clone", "aten::uniform_"}));
  EXPECT_FALSE(ordered(program, 1, 3));
}

TEST(MemoryDemand, LeavesOutInputsResultsAndOutsideTensors) {
  const at::Tensor weight = torch::randn({4, 4});
  const Program program = record({torch::randn({4, 4})}, [&](const Tensors& in) -> Tensors {
    return {torch::mm(in[0], weight).relu().exp()};
  });
  const MemoryDemand demand = memory_demand(program, 64);
  std::uint64_t lasting = 0;
  for (const BufferId id : demand.buffers) lasting += program.buffer(id).kind == BufferKind::kInternal;
  EXPECT_EQ(lasting, 2u);  // of mm and relu; exp's is the caller's
}

TEST(MemoryDemand, OfWhatEscapesLastsUntilATaskThatNothingComesAfter) {
  //   relu#0 ──▶ exp#1 ──▶ neg#2 ──▶ add#5        exp#1's result escapes
  //   tanh#3 ──▶ sin#4 ──────────────╯
  Program program = record({torch::randn({256})}, [](const Tensors& in) -> Tensors {
    const at::Tensor escapes = in[0].relu().exp();
    const at::Tensor left = escapes.neg();
    return {left + in[0].tanh().sin()};
  });
  ASSERT_EQ(operators(program), (std::vector<std::string>{"aten::relu", "aten::exp", "aten::neg",
                                                          "aten::tanh", "aten::sin", "aten::add"}));
  const BufferId escaped = program.tasks[1].writes.front().buffer;
  program.buffers[escaped.index()].kind = BufferKind::kEscaped;

  const MemoryDemand demand = memory_demand_with_escaped(program, 64, dependencies(program));
  const auto found = std::find(demand.buffers.begin(), demand.buffers.end(), escaped);
  ASSERT_NE(found, demand.buffers.end());
  const auto& uses = demand.specs[static_cast<std::size_t>(found - demand.buffers.begin())].uses;
  EXPECT_EQ(std::set<TaskId>(uses.begin(), uses.end()), (std::set<TaskId>{TaskId{1}, TaskId{2}, TaskId{5}}));
  EXPECT_EQ(demand.specs.size(), memory_demand(program, 64).specs.size() + 1);
}

TEST(MemoryDemand, OfWhatEscapesIsTakenFromWhatIsGoneAndNeverGivenBack) {
  //   relu#0 ──▶ exp#1 ──▶ neg#2 ──▶ mul#4        neg#2's result escapes
  //   sin#3 ─────────────────────────╯
  Program program = record({torch::randn({1 << 16})}, [](const Tensors& in) -> Tensors {
    const at::Tensor escapes = in[0].relu().exp().neg();
    return {escapes * in[0].sin()};
  });
  const BufferId escaped = program.tasks[2].writes.front().buffer;
  program.buffers[escaped.index()].kind = BufferKind::kEscaped;
  const TaskGraph graph = dependencies(program);
  for (const StreamLimit limit : {StreamLimit::maximum(), StreamLimit::at_most(1), StreamLimit::at_most(2)}) {
    Schedule schedule = plan(graph, {}, limit);
    const TaskGraph order = happens_before_graph(graph, schedule);
    const MemoryDemand demand = memory_demand_with_escaped(program, 64, order);
    schedule.memory = plan_memory(demand.specs, order, schedule.launch_order);
    const auto span_of = [&](std::size_t i) {
      return std::pair(schedule.memory.offsets[i], schedule.memory.offsets[i] + demand.specs[i].bytes);
    };
    const auto place = static_cast<std::size_t>(
        std::find(demand.buffers.begin(), demand.buffers.end(), escaped) - demand.buffers.begin());
    const auto [begin, end] = span_of(place);
    const Reachability happens(order);
    std::size_t taken_from = 0;
    for (std::size_t i = 0; i < demand.specs.size(); ++i) {
      const auto [first, last] = span_of(i);
      if (i == place || last <= begin || end <= first) continue;
      ++taken_from;
      for (const TaskId use : demand.specs[i].uses) EXPECT_TRUE(happens.happens_before(use, TaskId{2}));
    }
    EXPECT_GE(taken_from, 1u);  // of relu's result, which is gone when neg makes its own
  }
}

}  // namespace
}  // namespace nimble
