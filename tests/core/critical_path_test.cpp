#include "nimble/core/critical_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <limits>

#include "nimble/core/error.h"

namespace nimble {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TaskGraph graph_of(std::initializer_list<Nanoseconds> costs, std::initializer_list<Edge> edges) {
  TaskGraphBuilder builder;
  for (const Nanoseconds cost : costs) builder.add_task("t" + std::to_string(cost), cost);
  for (const Edge& edge : edges) builder.add_edge(edge.before, edge.after);
  return std::move(builder).build();
}

TEST(CriticalPath, OfNoTasksIsEmpty) { EXPECT_THAT(critical_path(TaskGraph()), IsEmpty()); }

TEST(CriticalPath, GoesThroughTheSlowerBranch) {
  const TaskGraph diamond = graph_of(
      {10, 20, 30, 11},
      {{TaskId{0}, TaskId{1}}, {TaskId{0}, TaskId{2}}, {TaskId{1}, TaskId{3}}, {TaskId{2}, TaskId{3}}});
  EXPECT_THAT(critical_path(diamond), ElementsAre(TaskId{0}, TaskId{2}, TaskId{3}));
}

TEST(CriticalPath, PrefersOneLongTaskToManyShortOnes) {
  const TaskGraph graph = graph_of({1, 2, 3, 100}, {{TaskId{0}, TaskId{1}}, {TaskId{1}, TaskId{2}}});
  EXPECT_THAT(critical_path(graph, {.node_cost = 0}), ElementsAre(TaskId{3}));
}

TEST(CriticalPath, IsAsLongAsTheLowerBoundSays) {
  const TaskGraph graph = graph_of(
      {5, 7, 11, 13, 17},
      {{TaskId{0}, TaskId{2}}, {TaskId{1}, TaskId{2}}, {TaskId{1}, TaskId{3}}, {TaskId{3}, TaskId{4}}});
  const Machine machine{.node_cost = 3};
  Nanoseconds length = 0;
  for (const TaskId task : critical_path(graph, machine)) length += *graph.cost(task) + machine.node_cost;
  EXPECT_EQ(length, lower_bounds(graph, machine).critical_path);
}

TEST(CriticalPath, AndThePathsThroughTasksAreRefusedWhereTimesOverflow) {
  constexpr Nanoseconds kMost = std::numeric_limits<Nanoseconds>::max();
  const TaskGraph chain = graph_of({kMost - 1, 2}, {{TaskId{0}, TaskId{1}}}), alone = graph_of({kMost}, {});
  for (const TaskGraph* graph : {&chain, &alone}) {
    EXPECT_THROW(critical_path(*graph, {.node_cost = 1}), InvalidInput);
    EXPECT_THROW(longest_paths_through(*graph, {.node_cost = 1}), InvalidInput);
  }
  EXPECT_THAT(longest_paths_through(alone, {.node_cost = 0}), ElementsAre(kMost));
}

TEST(LongestPathsThrough, AreAsLongAsTheWholeOnTheCriticalPathAndShorterBesideIt) {
  //  0 ─┬─▶ 1 ─┬─▶ 3
  //     └─▶ 2 ─┘
  const TaskGraph diamond = graph_of(
      {10, 20, 30, 11},
      {{TaskId{0}, TaskId{1}}, {TaskId{0}, TaskId{2}}, {TaskId{1}, TaskId{3}}, {TaskId{2}, TaskId{3}}});
  EXPECT_THAT(longest_paths_through(diamond, {.node_cost = 0}), ElementsAre(51, 41, 51, 51));
  EXPECT_THAT(longest_paths_through(diamond, {.node_cost = 1}), ElementsAre(54, 44, 54, 54));
}

TEST(LongestPathsThrough, OfTasksThatNothingIsOrderedBeforeAreTheirOwn) {
  EXPECT_THAT(longest_paths_through(graph_of({5, 7}, {}), {.node_cost = 0}), ElementsAre(5, 7));
  EXPECT_THAT(longest_paths_through(TaskGraph()), IsEmpty());
}

}  // namespace
}  // namespace nimble
