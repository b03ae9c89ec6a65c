#include "nimble/core/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nimble/core/error.h"
#include "nimble/core/verify.h"
#include "tests/core/brute_force.h"
#include "tests/core/model_graphs.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TaskId a{0}, b{1}, c{2}, d{3};

// Functions, since inside a test `Run` means a member of the test.
Step run(TaskId task) { return Run{task}; }
Step record(EventId event) { return RecordEvent{event}; }
Step wait(EventId event) { return WaitEvent{event}; }

// a ─▶ b ─▶ d
//  ╲─▶ c ─╱
TaskGraph diamond() {
  TaskGraphBuilder builder;
  for (const char* name : {"a", "b", "c", "d"}) builder.add_task(name);
  for (const Edge& edge : {Edge{a, b}, {a, c}, {b, d}, {c, d}}) builder.add_edge(edge.before, edge.after);
  return std::move(builder).build();
}

TEST(Schedule, OfADiamondTakesTwoStreamsAndTwoWaits) {
  const Schedule schedule = plan(diamond(), {});
  constexpr EventId a_done{0}, c_done{1};
  EXPECT_THAT(schedule.streams, ElementsAre(ElementsAre(run(a), record(a_done), run(b), wait(c_done), run(d)),
                                            ElementsAre(wait(a_done), run(c), record(c_done))));
  EXPECT_EQ(schedule.event_count, 2);
  EXPECT_EQ(schedule.wait_count(), 2);
  EXPECT_THAT(schedule.stream_of(), ElementsAre(StreamId{0}, StreamId{0}, StreamId{1}, StreamId{0}));
}

TEST(Schedule, RecordsOneEventForATaskThatManyWaitFor) {
  TaskGraphBuilder builder;
  const TaskId fork = builder.add_task("fork");
  for (int i = 0; i < 5; ++i) builder.add_edge(fork, builder.add_task("branch" + std::to_string(i)));
  const Schedule schedule = plan(std::move(builder).build(), {});
  EXPECT_EQ(schedule.event_count, 1);
  EXPECT_EQ(schedule.wait_count(), 4);
}

TEST(Schedule, OnOneStreamHasNeitherEventsNorWaits) {
  const Schedule schedule = plan(diamond(), {}, StreamLimit::at_most(1));
  EXPECT_THAT(schedule.streams, ElementsAre(ElementsAre(run(a), run(b), run(c), run(d))));
  EXPECT_EQ(schedule.event_count, 0);
}

TEST(Schedule, OfTheEmptyGraphIsEmpty) {
  for (StreamLimit limit : {StreamLimit::maximum(), StreamLimit::at_most(1), StreamLimit::at_most(3)})
    EXPECT_EQ(plan(TaskGraph(), {}, limit), Schedule());
}

TEST(Schedule, RefusesALimitOfZeroStreams) { EXPECT_THROW(StreamLimit::at_most(0), InvalidInput); }

TEST(HappensBeforeGraph, OrdersNeighboursOnAStreamAndWhatWaitsForAnEvent) {
  const Schedule schedule = plan(diamond(), {}, StreamLimit::maximum());
  EXPECT_THAT(edges_of(happens_before_graph(diamond(), schedule)),
              ElementsAre(Edge{a, b}, Edge{a, c}, Edge{b, d}, Edge{c, d}));
  const Schedule one = plan(diamond(), {}, StreamLimit::at_most(1));
  EXPECT_THAT(edges_of(happens_before_graph(diamond(), one)),
              ElementsAre(Edge{a, b}, Edge{b, c}, Edge{c, d}));
}

TEST(Schedule, OfModelsVerifies) {
  for (const auto& [graph, buffers] :
       {inception_like(11), nasnet_like(12), training_like(40), branchy(1000, 20)})
    for (StreamLimit limit : {StreamLimit::maximum(), StreamLimit::at_most(1), StreamLimit::at_most(4)})
      EXPECT_THAT(verify(graph, buffers, plan(graph, buffers, limit)), IsEmpty());
}

}  // namespace
}  // namespace nimble::testing
