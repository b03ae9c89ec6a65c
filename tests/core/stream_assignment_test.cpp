#include "nimble/core/stream_assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "nimble/core/error.h"
#include "nimble/core/matching.h"
#include "nimble/core/minimum_equivalent_graph.h"
#include "tests/core/brute_force.h"
#include "tests/core/model_graphs.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// Streams are numbered by their first launch, all are used, and tasks are launched after what they depend on.
void expect_well_formed(const TaskGraph& graph, const StreamAssignment& streams) {
  ASSERT_EQ(streams.stream_of.size(), graph.task_count());
  std::vector<bool> launched(graph.task_count());
  std::uint32_t opened = 0;
  for (TaskId task : streams.launch_order) {
    EXPECT_LE(streams.stream_of[task.index()].value, opened);
    opened = std::max(opened, streams.stream_of[task.index()].value + 1);
    for (TaskId before : graph.predecessors(task)) EXPECT_TRUE(launched[before.index()]);
    EXPECT_FALSE(launched[task.index()]);
    launched[task.index()] = true;
  }
  EXPECT_EQ(streams.launch_order.size(), graph.task_count());
  EXPECT_EQ(streams.stream_count, opened);
}

TaskGraph two_chains_of_three() {
  // a0 ─▶ a1 ─▶ a2
  // b0 ─▶ b1 ─▶ b2
  TaskGraphBuilder builder;
  for (const char* name : {"a0", "a1", "a2", "b0", "b1", "b2"}) builder.add_task(name, 5000);
  for (std::uint32_t first : {0U, 3U})
    for (std::uint32_t i = first; i < first + 2; ++i) builder.add_edge(TaskId{i}, TaskId{i + 1});
  return std::move(builder).build();
}

TEST(SingleStream, TakesTheGraphsOwnOrder) {
  Random random(1);
  const TaskGraph graph = random_graph(random, Shape::kLayered, 50);
  const StreamAssignment streams = single_stream(graph);
  expect_well_formed(graph, streams);
  EXPECT_EQ(streams.stream_count, 1);
  EXPECT_THAT(streams.launch_order, ElementsAreArray(graph.topological_order()));
}

TEST(MaximumConcurrency, GivesIndependentChainsTheirOwnStreams) {
  const TaskGraph graph = two_chains_of_three();
  const StreamAssignment streams = maximum_concurrency(graph);
  expect_well_formed(graph, streams);
  EXPECT_THAT(streams.stream_of,
              ElementsAre(StreamId{0}, StreamId{0}, StreamId{0}, StreamId{1}, StreamId{1}, StreamId{1}));
}

TEST(MaximumConcurrency, TakesTasksMinusMatchingStreams) {
  for (Shape shape : kShapes) {
    Random random(2);
    const TaskGraph reduced = minimum_equivalent_graph(random_graph(random, shape, 300));
    const StreamAssignment streams = maximum_concurrency(reduced);
    expect_well_formed(reduced, streams);
    EXPECT_EQ(streams.stream_count, 300 - maximum_matching(reduced).size) << name_of(shape);
  }
}

TEST(BoundedStreams, NeverTakesMoreThanTheLimit) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (Shape shape : kShapes)
      for (std::size_t limit : {1, 2, 3, 8, 1'000'000}) {
        Random random(seed);
        const TaskGraph graph = random_graph(random, shape, random.between(1, 150));
        const StreamAssignment streams = bounded_streams(graph, limit);
        expect_well_formed(graph, streams);
        EXPECT_LE(streams.stream_count, std::min(limit, graph.task_count()));
      }
}

TEST(BoundedStreams, RunsIndependentChainsSideBySide) {
  const StreamAssignment streams = bounded_streams(two_chains_of_three(), 2);
  EXPECT_EQ(streams.stream_of[0], streams.stream_of[2]);
  EXPECT_EQ(streams.stream_of[3], streams.stream_of[5]);
  EXPECT_NE(streams.stream_of[0], streams.stream_of[3]);
}

TEST(BoundedStreams, TakesNoStreamThatSavesNoTime) {
  // A fork into two tasks that are shorter than a synchronisation.
  TaskGraphBuilder builder;
  const TaskId fork = builder.add_task("fork", 1000), join = builder.add_task("join", 1000);
  for (const char* name : {"left", "right"}) {
    const TaskId branch = builder.add_task(name, 100);
    builder.add_edge(fork, branch);
    builder.add_edge(branch, join);
  }
  const TaskGraph graph = std::move(builder).build();
  EXPECT_EQ(bounded_streams(graph, 8, /*sync_cost=*/1000).stream_count, 1);
  EXPECT_EQ(bounded_streams(graph, 8, /*sync_cost=*/10).stream_count, 2);
}

TEST(BoundedStreams, StartsTheLongestPathFirst) {
  // Three short tasks come first in the program, the head of a long chain last.
  TaskGraphBuilder builder;
  for (const char* name : {"short0", "short1", "short2"}) builder.add_task(name, 1000);
  const TaskId head = builder.add_task("head", 1000), tail = builder.add_task("tail", 9000);
  builder.add_edge(head, tail);
  EXPECT_EQ(bounded_streams(std::move(builder).build(), 2).launch_order.front(), head);
}

TEST(BoundedStreams, SurvivesCostsThatAddUpToMoreThanTheClockHolds) {
  TaskGraphBuilder builder;
  for (int i = 0; i < 4; ++i)
    builder.add_task("t" + std::to_string(i), std::numeric_limits<Nanoseconds>::max());
  for (std::uint32_t i = 0; i < 3; ++i) builder.add_edge(TaskId{i}, TaskId{i + 1});
  EXPECT_THAT(bounded_streams(std::move(builder).build(), 2).stream_of, Each(StreamId{0}));
}

TEST(BoundedStreams, RefusesALimitOfZeroAndANegativeSyncCost) {
  EXPECT_THROW(bounded_streams(two_chains_of_three(), 0), InvalidInput);
  EXPECT_THROW(bounded_streams(two_chains_of_three(), 2, -1), InvalidInput);
}

}  // namespace
}  // namespace nimble::testing
