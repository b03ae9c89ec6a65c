#include "nimble/core/task_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nimble/core/error.h"

namespace nimble {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr TaskId a{0}, b{1}, c{2}, d{3};

TaskGraphBuilder four_tasks() {
  TaskGraphBuilder builder;
  for (const char* name : {"a", "b", "c", "d"}) builder.add_task(name);
  return builder;
}

// a ─▶ b ─▶ d
//  ╲─▶ c ─╱
TaskGraphBuilder diamond() {
  TaskGraphBuilder builder = four_tasks();
  builder.add_edge(a, c);
  builder.add_edge(a, b);
  builder.add_edge(c, d);
  builder.add_edge(b, d);
  return builder;
}

TEST(TaskGraph, KnowsItsTasksAndEdges) {
  const TaskGraph graph = diamond().build();
  EXPECT_EQ(graph.task_count(), 4);
  EXPECT_EQ(graph.edge_count(), 4);
  EXPECT_EQ(graph.name(c), "c");
  EXPECT_THAT(graph.successors(a), ElementsAre(b, c));
  EXPECT_THAT(graph.predecessors(d), ElementsAre(b, c));
  EXPECT_THAT(graph.predecessors(a), IsEmpty());
}

TEST(TaskGraph, MayBeEmpty) {
  EXPECT_EQ(TaskGraph().task_count(), 0);
  EXPECT_THAT(TaskGraph().topological_order(), IsEmpty());
  EXPECT_EQ(TaskGraphBuilder().build(), TaskGraph());
}

TEST(TaskGraph, KnowsACostOnlyWhereOneWasGiven) {
  TaskGraphBuilder builder;
  builder.add_task("measured", 1500);
  builder.add_task("free", 0);
  builder.add_task("unknown");
  const TaskGraph graph = std::move(builder).build();
  EXPECT_EQ(graph.cost(TaskId{0}), 1500);
  EXPECT_EQ(graph.cost(TaskId{1}), 0);
  EXPECT_EQ(graph.cost(TaskId{2}), std::nullopt);
}

TEST(TaskGraph, MergesRepeatedEdges) {
  TaskGraphBuilder builder = diamond();
  builder.add_edge(a, b);
  EXPECT_EQ(std::move(builder).build().edge_count(), 4);
}

TEST(TaskGraph, OrdersTasksAsRecordedWherePossible) {
  EXPECT_THAT(diamond().build().topological_order(), ElementsAre(a, b, c, d));
}

TEST(TaskGraph, OrdersTasksBySmallestReadyIdElsewhere) {
  TaskGraphBuilder builder = four_tasks();
  builder.add_edge(d, a);
  builder.add_edge(c, b);
  EXPECT_THAT(std::move(builder).build().topological_order(), ElementsAre(c, b, d, a));
}

TEST(TaskGraph, IsEqualToOneWithTheSameNamesCostsAndEdges) {
  EXPECT_EQ(diamond().build(), diamond().build());
  EXPECT_NE(diamond().build(), four_tasks().build());
  TaskGraphBuilder renamed;
  for (const char* name : {"a", "b", "c", "e"}) renamed.add_task(name);
  EXPECT_NE(four_tasks().build(), std::move(renamed).build());
}

TEST(TaskGraph, KeepsItsTasksWithOtherEdges) {
  const TaskGraph graph = diamond().build();
  const TaskGraph chain = graph.with_edges(std::vector<Edge>{{c, b}, {b, a}, {c, b}});
  EXPECT_EQ(chain.name(d), "d");
  EXPECT_EQ(chain.edge_count(), 2);
  EXPECT_THAT(chain.topological_order(), ElementsAre(c, b, a, d));
  EXPECT_THAT(
      [&] {
        graph.with_edges(std::vector<Edge>{{a, b}, {b, a}});
      },
      ThrowsMessage<InvalidInput>(HasSubstr("cycle: a -> b -> a")));
  EXPECT_THROW(graph.with_edges(std::vector<Edge>{{a, TaskId{4}}}), InvalidInput);
  EXPECT_THROW(graph.with_edges(std::vector<Edge>{{a, a}}), InvalidInput);
}

TEST(TaskGraph, OutlivesTheGraphItSharesNamesWith) {
  std::optional<TaskGraph> original = diamond().build();
  const TaskGraph derived = original->with_edges({});
  original.reset();
  EXPECT_EQ(derived.name(d), "d");
}

TEST(TaskGraphBuilder, RefusesACycleAndNamesIt) {
  TaskGraphBuilder builder = four_tasks();
  builder.add_edge(a, b);
  builder.add_edge(b, d);
  builder.add_edge(d, c);
  builder.add_edge(c, b);
  EXPECT_THAT(
      [&] { std::move(builder).build(); },
      ThrowsMessage<InvalidInput>(AllOf(StartsWith("[nimble::"), HasSubstr("cycle: b -> d -> c -> b"))));
}

TEST(TaskGraphBuilder, ShortensALongCycle) {
  TaskGraphBuilder builder;
  for (int i = 0; i < 1000; ++i) builder.add_task("t" + std::to_string(i));
  for (std::uint32_t i = 0; i < 1000; ++i) builder.add_edge(TaskId{i}, TaskId{(i + 1) % 1000});
  EXPECT_THAT([&] { std::move(builder).build(); },
              ThrowsMessage<InvalidInput>(HasSubstr("(1000 tasks) -> t0")));
}

TEST(TaskGraphBuilder, RefusesATaskThatWaitsForItself) {
  TaskGraphBuilder builder = four_tasks();
  EXPECT_THAT([&] { builder.add_edge(b, b); },
              ThrowsMessage<InvalidInput>(
                  AllOf(HasSubstr("edge 1 -> 1"), HasSubstr("\"b\" cannot wait for itself"))));
}

TEST(TaskGraphBuilder, RefusesUnknownTasks) {
  TaskGraphBuilder builder = four_tasks();
  EXPECT_THAT([&] { builder.add_edge(a, TaskId{4}); },
              ThrowsMessage<InvalidInput>(HasSubstr("edge 0 -> 4: there are only 4 tasks")));
  EXPECT_THROW(builder.add_edge(TaskId{7}, a), InvalidInput);
}

TEST(TaskGraphBuilder, RefusesATakenName) {
  TaskGraphBuilder builder = four_tasks();
  EXPECT_THAT([&] { builder.add_task("c"); },
              ThrowsMessage<InvalidInput>(HasSubstr("\"c\" is already taken")));
}

TEST(TaskGraphBuilder, RefusesANegativeCost) {
  TaskGraphBuilder builder;
  EXPECT_THAT([&] { builder.add_task("a", -5); },
              ThrowsMessage<InvalidInput>(HasSubstr("-5 ns is negative")));
}

}  // namespace
}  // namespace nimble
