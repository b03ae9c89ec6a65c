#include "nimble/core/memory_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nimble/core/minimum_equivalent_graph.h"
#include "nimble/core/simulate.h"
#include "nimble/core/verify.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

using ::testing::IsEmpty;

// What a layer leaves is read twice: on the way on, and by a task beside it that nobody waits for.
//
//   make ─▶ on ─▶ further ─▶ large ─▶ end
//     ╲─▶ beside
//
//   left:  made by `make`, read by `on` and `beside`
//   right: made by `large`, read by `end`
struct Side {
  TaskGraph graph;
  std::vector<BufferSpec> buffers;
};
constexpr std::uint64_t kMiB = 1 << 20;
constexpr TaskId make{0}, on{1}, beside{2}, further{3}, large{4}, end{5};

Side side_task(Nanoseconds cost_beside, std::uint64_t left, std::uint64_t right) {  // in MiB
  TaskGraphBuilder builder;
  builder.add_task("make", 10'000);
  builder.add_task("on", 10'000);
  builder.add_task("beside", cost_beside);
  for (const char* name : {"further", "large", "end"}) builder.add_task(name, 10'000);
  for (const Edge& edge : {Edge{make, on}, {make, beside}, {on, further}, {further, large}, {large, end}})
    builder.add_edge(edge.before, edge.after);
  return {std::move(builder).build(),
          {{"left", left * kMiB, 1, {make, on, beside}}, {"right", right * kMiB, 1, {large, end}}}};
}

// As plan() makes it, but for the waits.
Schedule plan_without_waits(const TaskGraph& graph, std::span<const BufferSpec> buffers,
                            std::size_t streams) {
  const TaskGraph reduced = minimum_equivalent_graph(graph);
  Schedule schedule = make_schedule(reduced, bounded_streams(reduced, streams));
  schedule.memory = plan_memory(buffers, happens_before_graph(graph, schedule), schedule.launch_order);
  return schedule;
}

TEST(WaitsForMemory, LetBuffersShareWhatATaskBesideIsDoneWith) {
  const auto [graph, buffers] = side_task(/*cost_beside=*/10'000, 1000, 1000);
  const Schedule before = plan_without_waits(graph, buffers, 2);
  ASSERT_EQ(before.memory.arena_bytes, 2000 * kMiB);
  const Schedule schedule = plan(graph, buffers, StreamLimit::at_most(2));
  EXPECT_EQ(schedule.memory.arena_bytes, 1000 * kMiB);
  EXPECT_EQ(schedule.wait_count(), before.wait_count() + 1);
  EXPECT_EQ(schedule.stream_of(), before.stream_of());
  EXPECT_THAT(verify(graph, buffers, schedule), IsEmpty());
}

TEST(WaitsForMemory, AreNotAddedWhereSomebodyWouldBeDelayed) {
  const auto [graph, buffers] = side_task(/*cost_beside=*/35'000, 1000, 1000);
  EXPECT_EQ(plan(graph, buffers, StreamLimit::at_most(2)), plan_without_waits(graph, buffers, 2));
}

TEST(WaitsForMemory, AreNotAddedForLessThanAHundredth) {
  const auto [graph, buffers] = side_task(/*cost_beside=*/10'000, 10'000, 90);
  EXPECT_EQ(plan(graph, buffers, StreamLimit::at_most(2)), plan_without_waits(graph, buffers, 2));
  const auto [other, larger] = side_task(/*cost_beside=*/10'000, 10'000, 110);
  EXPECT_EQ(plan(other, larger, StreamLimit::at_most(2)).memory.arena_bytes, 10'000 * kMiB);
}

// Small networks want to be quick, and have memory enough.
TEST(WaitsForMemory, AreNotAddedForAFewMegabytes) {
  const auto [graph, buffers] = side_task(/*cost_beside=*/10'000, 15, 15);
  const Schedule schedule = plan(graph, buffers, StreamLimit::at_most(2));
  EXPECT_EQ(schedule, plan_without_waits(graph, buffers, 2));
  EXPECT_LT(with_waits_for_memory(graph, buffers, schedule, /*worthwhile=*/1).memory.arena_bytes, 30 * kMiB);
}

TEST(WaitsForMemory, NeverLimitMaximumConcurrency) {
  const auto [graph, buffers] = side_task(/*cost_beside=*/10'000, 1000, 1000);
  const Schedule schedule = plan(graph, buffers, StreamLimit::maximum());
  EXPECT_EQ(schedule.memory.arena_bytes, 2000 * kMiB);
  EXPECT_EQ(schedule.wait_count(), 1);
}

TEST(WaitsForMemory, OfRandomGraphsKeepStreamsAndLaunchOrderAndCostNeitherMemoryNorMuchTime) {
  Random random(7);
  std::size_t saved = 0;
  for (int i = 0; i < 400; ++i) {
    const auto tasks = static_cast<std::uint32_t>(random.between(5, 60));
    const TaskGraph graph = random_graph(random, kShapes[i % kShapes.size()], tasks);
    const auto buffers = random_buffers(random, graph);
    const std::size_t streams = random.between(2, 6);
    const Schedule before = plan_without_waits(graph, buffers, streams);
    const Schedule after = with_waits_for_memory(graph, buffers, before, /*worthwhile=*/1);
    ASSERT_THAT(verify(graph, buffers, after), IsEmpty());
    EXPECT_EQ(after.stream_of(), before.stream_of());
    EXPECT_EQ(after.launch_order, before.launch_order);
    if (after == before) continue;
    ++saved;
    EXPECT_LT(after.memory.arena_bytes, before.memory.arena_bytes);
    const Nanoseconds time = simulate(graph, before).total;
    EXPECT_LE(simulate(graph, after).total, time + time / 200);
  }
  EXPECT_GT(saved, 20u);
}

TEST(WaitsForMemory, OfOtherBuffersReplaceThoseOfTheFirst) {
  Random random(11);
  std::size_t changed = 0;
  for (int i = 0; i < 400; ++i) {
    const TaskGraph graph = random_graph(random, kShapes[i % kShapes.size()], random.between(5, 60));
    const auto some = random_buffers(random, graph), others = random_buffers(random, graph);
    const Schedule once =
        with_waits_for_memory(graph, some, plan_without_waits(graph, some, random.between(2, 6)), 1);
    Schedule twice = once;
    twice.memory = plan_memory(others, happens_before_graph(graph, once), once.launch_order);
    twice = with_waits_for_memory(graph, others, std::move(twice), /*worthwhile=*/1);
    ASSERT_THAT(verify(graph, others, twice), IsEmpty());
    changed += twice.streams != once.streams;
  }
  EXPECT_GT(changed, 20u);
}

TEST(WaitsForMemory, AreNotLookedForWhereCostsCannotBeAddedUp) {
  TaskGraphBuilder builder;
  for (const char* name : {"a", "b", "c", "d"}) builder.add_task(name, Nanoseconds{1} << 62);
  builder.add_edge(TaskId{0}, TaskId{1});
  builder.add_edge(TaskId{0}, TaskId{2});
  builder.add_edge(TaskId{1}, TaskId{3});
  const TaskGraph graph = std::move(builder).build();
  const std::vector<BufferSpec> buffers = {{"left", 1000 * kMiB, 1, {TaskId{0}, TaskId{2}}},
                                           {"right", 1000 * kMiB, 1, {TaskId{3}}}};
  EXPECT_THAT(verify(graph, buffers, plan(graph, buffers, StreamLimit::at_most(2))), IsEmpty());
}

// A chain forward and back, and beside the way back a task for each layer.
TEST(WaitsForMemory, ServeLongTrainingSteps) {
  constexpr std::uint32_t kLayers = 300;
  TaskGraphBuilder builder;
  std::vector<TaskId> forward, backward, gradients;
  std::vector<BufferSpec> buffers;
  for (std::uint32_t l = 0; l < kLayers; ++l) {
    forward.push_back(builder.add_task("forward" + std::to_string(l), 10'000));
    if (l > 0) builder.add_edge(forward[l - 1], forward[l]);
  }
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    const std::uint32_t l = kLayers - 1 - i;
    const TaskId before = i == 0 ? forward.back() : backward.back();
    backward.push_back(builder.add_task("backward" + std::to_string(l), 10'000));
    gradients.push_back(builder.add_task("gradient" + std::to_string(l), 8'000));
    for (const TaskId after : {backward.back(), gradients.back()}) {
      builder.add_edge(before, after);
      if (before != forward[l]) builder.add_edge(forward[l], after);
    }
    buffers.push_back({"kept" + std::to_string(l), kMiB, 1, {forward[l], backward.back(), gradients.back()}});
    std::vector<TaskId> uses = {before, backward.back(), gradients.back()};
    buffers.push_back({"passed" + std::to_string(l), kMiB, 1, std::move(uses)});
  }
  const TaskGraph graph = std::move(builder).build();
  const MemoryPlan memory = plan(graph, buffers, StreamLimit::at_most(2)).memory;
  EXPECT_LT(memory.arena_bytes, memory.lower_bound + memory.lower_bound / 50);
  const MemoryPlan without = plan_without_waits(graph, buffers, 2).memory;
  EXPECT_GT(without.arena_bytes, memory.lower_bound + memory.lower_bound / 4);
}

}  // namespace
}  // namespace nimble::testing
