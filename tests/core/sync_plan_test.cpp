#include "nimble/core/sync_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nimble/core/error.h"
#include "tests/core/brute_force.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr TaskId a{0}, b{1}, c{2}, d{3};

TaskGraph graph_of_four(const std::vector<Edge>& edges) {
  TaskGraphBuilder builder;
  for (const char* name : {"a", "b", "c", "d"}) builder.add_task(name);
  for (const Edge& edge : edges) builder.add_edge(edge.before, edge.after);
  return std::move(builder).build();
}

StreamAssignment two_streams(std::vector<std::uint32_t> stream_of) {
  StreamAssignment streams{{}, 2, {a, b, c, d}};
  for (std::uint32_t stream : stream_of) streams.stream_of.push_back(StreamId{stream});
  return streams;
}

TEST(SyncPlan, NeedsNoneOnOneStream) {
  const TaskGraph graph = graph_of_four({{a, b}, {a, c}, {b, d}, {c, d}});
  EXPECT_THAT(plan_syncs(graph, single_stream(graph)), IsEmpty());
}

TEST(SyncPlan, WaitsAtForkAndJoinOfADiamond) {
  // stream 0:  a ─▶ b ─▶ d
  // stream 1:   ╲─▶ c ─╱
  const TaskGraph graph = graph_of_four({{a, b}, {a, c}, {b, d}, {c, d}});
  EXPECT_THAT(plan_syncs(graph, two_streams({0, 0, 1, 0})), ElementsAre(Wait{a, c}, Wait{c, d}));
}

TEST(SyncPlan, DropsAWaitThatStreamOrderAndAnotherWaitImply) {
  // stream 0:  a    b
  //             ╲    ╲      a ─▶ d follows from a before b on stream 0.
  // stream 1:    ╲──▶ c ─▶ d
  const TaskGraph graph = graph_of_four({{a, c}, {b, d}, {a, d}});
  EXPECT_THAT(plan_syncs(graph, two_streams({0, 0, 1, 1})), ElementsAre(Wait{a, c}, Wait{b, d}));
  const TaskGraph both_early = graph_of_four({{a, c}, {b, c}, {a, d}});
  EXPECT_THAT(plan_syncs(both_early, two_streams({0, 0, 1, 1})), ElementsAre(Wait{b, c}));
}

TEST(SyncPlan, IsSortedByLaunchOrder) {
  TaskGraphBuilder builder;
  for (const char* name : {"join", "x", "y", "z"}) builder.add_task(name);
  for (std::uint32_t t : {1U, 2U, 3U}) builder.add_edge(TaskId{t}, TaskId{0});
  const TaskGraph graph = std::move(builder).build();
  const StreamAssignment streams{{StreamId{0}, StreamId{0}, StreamId{1}, StreamId{2}}, 3, {b, d, c, a}};
  EXPECT_THAT(plan_syncs(graph, streams), ElementsAre(Wait{d, a}, Wait{c, a}));
}

TEST(SyncPlan, RefusesAnAssignmentThatIsNotOfThisGraph) {
  const TaskGraph graph = graph_of_four({{a, b}});
  EXPECT_THROW(plan_syncs(graph, StreamAssignment()), InvalidInput);
  StreamAssignment wrong_order = two_streams({0, 1, 0, 0});
  std::swap(wrong_order.launch_order[0], wrong_order.launch_order[1]);
  EXPECT_THAT([&] { plan_syncs(graph, wrong_order); },
              ThrowsMessage<InvalidInput>(HasSubstr("\"b\" is launched before \"a\"")));
}

// Whatever the assignment: the waits order exactly what graph and streams order together, and not one can go.
TEST(SyncPlan, IsMinimalForAnyAssignment) {
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (Shape shape : kShapes) {
      Random random(seed);
      const TaskGraph graph = random_graph(random, shape, random.between(1, 30));
      StreamAssignment streams = bounded_streams(graph, random.between(1, 4));
      for (StreamId& stream : streams.stream_of)
        if (random.chance(0.2))
          stream = StreamId{static_cast<std::uint32_t>(random.between(0, streams.stream_count - 1))};

      std::vector<Edge> stream_order;
      std::vector<std::optional<TaskId>> last(streams.stream_count);
      for (TaskId task : streams.launch_order) {
        auto& before = last[streams.stream_of[task.index()].index()];
        if (before) stream_order.push_back({*before, task});
        before = task;
      }
      const auto with = [](std::vector<Edge> edges, const std::vector<Edge>& more) {
        edges.insert(edges.end(), more.begin(), more.end());
        return edges;
      };
      const Order wanted(graph.with_edges(with(stream_order, edges_of(graph))));
      std::vector<Edge> waits;
      for (const Wait& wait : plan_syncs(graph, streams)) waits.push_back({wait.before, wait.after});
      ASSERT_EQ(Order(graph.with_edges(with(stream_order, waits))), wanted)
          << name_of(shape) << ", seed " << seed;
      for (std::size_t i = 0; i < waits.size(); ++i) {
        std::vector<Edge> fewer = waits;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_NE(Order(graph.with_edges(with(stream_order, fewer))), wanted);
      }
    }
}

}  // namespace
}  // namespace nimble::testing
