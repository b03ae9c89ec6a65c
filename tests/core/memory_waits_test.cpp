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
constexpr TaskId make{0}, on{1}, beside{2}, further{3}, large{4}, end{5};

Side side_task(Nanoseconds cost_beside, std::uint64_t left, std::uint64_t right) {
  TaskGraphBuilder builder;
  builder.add_task("make", 10'000);
  builder.add_task("on", 10'000);
  builder.add_task("beside", cost_beside);
  for (const char* name : {"further", "large", "end"}) builder.add_task(name, 10'000);
  for (const Edge& edge : {Edge{make, on}, {make, beside}, {on, further}, {further, large}, {large, end}})
    builder.add_edge(edge.before, edge.after);
  return {std::move(builder).build(),
          {{"left", left, 1, {make, on, beside}}, {"right", right, 1, {large, end}}}};
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
  ASSERT_EQ(before.memory.arena_bytes, 2000);
  const Schedule schedule = plan(graph, buffers, StreamLimit::at_most(2));
  EXPECT_EQ(schedule.memory.arena_bytes, 1000);
  EXPECT_EQ(schedule.wait_count(), before.wait_count() + 1);
  EXPECT_EQ(schedule.stream_of(), before.stream_of());
  EXPECT_THAT(verify(graph, buffers, schedule), IsEmpty());
}

TEST(WaitsForMemory, AreNotAddedWhereSomebodyWouldBeDelayed) {
  const auto [graph, buffers] = side_task(/*cost_beside=*/35'000, 1000, 1000);
  EXPECT_EQ(plan(graph, buffers, StreamLimit::at_most(2)), plan_without_waits(graph, buffers, 2));
}

TEST(WaitsForMemory, AreNotAddedForLessThanAHundredth) {
  const auto [graph, buffers] = side_task(/*cost_beside=*/10'000, 1'000'000, 9'000);
  EXPECT_EQ(plan(graph, buffers, StreamLimit::at_most(2)), plan_without_waits(graph, buffers, 2));
  const auto [other, larger] = side_task(/*cost_beside=*/10'000, 1'000'000, 11'000);
  EXPECT_EQ(plan(other, larger, StreamLimit::at_most(2)).memory.arena_bytes, 1'000'000);
}

TEST(WaitsForMemory, NeverLimitMaximumConcurrency) {
  const auto [graph, buffers] = side_task(/*cost_beside=*/10'000, 1000, 1000);
  const Schedule schedule = plan(graph, buffers, StreamLimit::maximum());
  EXPECT_EQ(schedule.memory.arena_bytes, 2000);
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
    const Schedule after = with_waits_for_memory(graph, buffers, before);
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

}  // namespace
}  // namespace nimble::testing
