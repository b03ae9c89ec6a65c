#include "nimble/core/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "nimble/core/error.h"
#include "random_graphs.h"
#include "steps.h"

namespace nimble::testing {
namespace {

constexpr Machine kMachine{.node_cost = 10, .sync_cost = 100, .default_cost = 1};

//        ┌─▶ left  (2000) ─┐
//   stem ┤                 ├─▶ join (unknown)
// (1000) └─▶ right (3000) ─┘
TaskGraph diamond() {
  TaskGraphBuilder builder;
  const TaskId stem = builder.add_task("stem", 1000), left = builder.add_task("left", 2000),
               right = builder.add_task("right", 3000), join = builder.add_task("join");
  builder.add_edge(stem, left);
  builder.add_edge(stem, right);
  builder.add_edge(left, join);
  builder.add_edge(right, join);
  return std::move(builder).build();
}

TEST(Simulate, TasksOnOneStreamRunOneAfterTheOther) {
  const TaskGraph graph = diamond();
  const Simulation timeline = simulate(graph, plan(graph, {}, StreamLimit::at_most(1)), kMachine);
  EXPECT_EQ(timeline.total, 1000 + 2000 + 3000 + 1 + 4 * 10);
  EXPECT_EQ(timeline.total, lower_bounds(graph, kMachine).work);
}

TEST(Simulate, AWaitCostsOnlyTheOneWhoWaits) {
  const TaskId stem{0}, left{1}, right{2}, join{3};
  Schedule schedule;  // left has to wait for stem, join for left
  schedule.streams = {{run(stem), record(EventId{0}), run(right), wait(EventId{1}), run(join)},
                      {wait(EventId{0}), run(left), record(EventId{1})}};
  schedule.launch_order = {stem, left, right, join};
  schedule.event_count = 2;
  const Simulation timeline = simulate(diamond(), schedule, kMachine);
  EXPECT_EQ(timeline.tasks[stem.index()].end, 1010);
  EXPECT_EQ(timeline.tasks[right.index()].start, 1010);
  EXPECT_EQ(timeline.tasks[left.index()].start, 1010 + 100);
  EXPECT_EQ(timeline.tasks[join.index()].start, 1010 + 3010) << "left has long finished";
  EXPECT_EQ(timeline.total, 1010 + 3010 + 11);
}

TEST(LowerBounds, AreTheLongestPathAndTheWorkSharedOut) {
  const LowerBounds bounds = lower_bounds(diamond(), kMachine);
  EXPECT_EQ(bounds.critical_path, 1010 + 3010 + 11);
  EXPECT_EQ(bounds.time(1), bounds.work);
  EXPECT_EQ(bounds.time(2), bounds.critical_path);
}

TEST(Simulate, NoScheduleBeatsTheLowerBounds) {
  Random random(40);
  for (int round = 0; round < 300; ++round) {
    const Shape shape = kShapes[static_cast<std::size_t>(round) % kShapes.size()];
    const TaskGraph graph = random_graph(random, shape, random.between(1, 200));
    for (std::size_t limit : {0, 1, 2, 7}) {
      const Schedule schedule = plan(graph, {}, StreamLimit{limit});
      EXPECT_GE(simulate(graph, schedule).total, lower_bounds(graph).time(schedule.streams.size()));
    }
  }
}

TEST(Simulate, RespectsEveryEdge) {
  Random random(41);
  for (int round = 0; round < 100; ++round) {
    const TaskGraph graph = random_graph(random, Shape::kLayered, random.between(1, 100));
    const Simulation timeline = simulate(graph, plan(graph, {}));
    for (std::uint32_t t = 0; t < graph.task_count(); ++t)
      for (TaskId next : graph.successors(TaskId{t}))
        EXPECT_LE(timeline.tasks[t].end, timeline.tasks[next.index()].start);
  }
}

TEST(Simulate, RefusesAScheduleThatCannotRunToItsEnd) {
  Schedule schedule;
  schedule.streams = {{wait(EventId{0}), run(TaskId{0})}};
  schedule.event_count = 1;
  EXPECT_THROW(simulate(diamond(), schedule), Error);
  schedule.streams = {{run(TaskId{7})}};
  EXPECT_THROW(simulate(diamond(), schedule), Error);
}

TEST(Simulate, RefusesTimesThatOverflow) {
  TaskGraphBuilder builder;
  const TaskId a = builder.add_task("a", std::numeric_limits<Nanoseconds>::max());
  builder.add_edge(a, builder.add_task("b"));
  const TaskGraph graph = std::move(builder).build();
  EXPECT_THROW(lower_bounds(graph), InvalidInput);
  Schedule schedule;
  schedule.streams = {{run(TaskId{0}), run(TaskId{1})}};
  EXPECT_THROW(simulate(graph, schedule), InvalidInput);
}

}  // namespace
}  // namespace nimble::testing
