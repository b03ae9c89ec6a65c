#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "nimble/core/degree_of_concurrency.h"
#include "nimble/core/matching.h"
#include "nimble/core/minimum_equivalent_graph.h"
#include "nimble/core/schedule.h"
#include "nimble/core/verify.h"
#include "tests/core/brute_force.h"
#include "tests/core/random_graphs.h"

// What the planner promises, on thousands of random graphs of each shape.
namespace nimble::testing {
namespace {

using ::testing::IsEmpty;

class PlannerProperties : public ::testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(Shapes, PlannerProperties, ::testing::ValuesIn(kShapes), [](const auto& shape) {
  std::string name = name_of(shape.param);
  std::erase(name, '-');
  return name;
});

// With maximum concurrency: the schedule orders what the graph orders and nothing else, with |E'| - |M|
// waits.
void expect_paper(const TaskGraph& graph, const Schedule& schedule) {
  const TaskGraph reduced = minimum_equivalent_graph(graph);
  EXPECT_EQ(edges_of(reduced), transitive_reduction(graph));
  const std::size_t matched = maximum_matching(reduced).size;
  EXPECT_EQ(schedule.streams.size(), graph.task_count() - matched);
  EXPECT_EQ(schedule.wait_count(), reduced.edge_count() - matched);
  EXPECT_EQ(Order(happens_before_graph(graph, schedule)), Order(graph));
}

TEST_P(PlannerProperties, HoldAgainstBruteForceOnSmallGraphs) {
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const TaskGraph graph = random_graph(random, GetParam(), random.between(1, 12));
    const auto buffers = random_buffers(random, graph);
    const Schedule schedule = plan(graph, buffers);
    expect_paper(graph, schedule);
    const TaskGraph reduced = minimum_equivalent_graph(graph);
    EXPECT_EQ(maximum_matching(reduced).size, largest_matching(reduced));
    EXPECT_EQ(degree_of_concurrency(graph), largest_unordered_set(graph));
    EXPECT_THAT(overlapping_buffers(buffers, schedule.memory, Order(graph)), IsEmpty());
    EXPECT_EQ(schedule.memory.lower_bound, most_bytes_live(buffers, schedule.launch_order));
    if (HasFailure()) return;
  }
}

TEST_P(PlannerProperties, HoldOnBigGraphs) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const TaskGraph graph = random_graph(random, GetParam(), random.between(200, 2000));
    const auto buffers = random_buffers(random, graph);
    const Schedule schedule = plan(graph, buffers);
    expect_paper(graph, schedule);
    EXPECT_THAT(overlapping_buffers(buffers, schedule.memory, Order(graph)), IsEmpty());
  }
}

TEST_P(PlannerProperties, EveryScheduleVerifiesAndIsPlannedTheSameAgain) {
  for (std::uint64_t seed = 0; seed < 25; ++seed)
    for (StreamLimit limit : {StreamLimit::maximum(), StreamLimit::at_most(1), StreamLimit::at_most(2),
                              StreamLimit::at_most(5)}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Random random(seed), same(seed);
      const TaskGraph graph = random_graph(random, GetParam(), random.between(1, 200));
      const auto buffers = random_buffers(random, graph);
      const Schedule schedule = plan(graph, buffers, limit);
      EXPECT_THAT(verify(graph, buffers, schedule), IsEmpty());
      EXPECT_TRUE(limit.count == 0 || schedule.streams.size() <= limit.count);
      const TaskGraph twin = random_graph(same, GetParam(), same.between(1, 200));
      EXPECT_EQ(plan(twin, random_buffers(same, twin), limit), schedule);
    }
}

// All ways to spread the tasks over streams such that tasks on one stream are ordered, as maximum logical
// concurrency demands; `visit` gets the stream of each task.
void for_each_assignment(const Order& order, std::vector<std::uint32_t>& stream_of, std::uint32_t streams,
                         const std::function<void(const std::vector<std::uint32_t>&)>& visit) {
  const auto task = static_cast<std::uint32_t>(stream_of.size());
  if (task == order.size()) return visit(stream_of);
  for (std::uint32_t stream = 0; stream <= streams; ++stream) {
    bool fits = true;
    for (std::uint32_t t = 0; t < task; ++t)
      fits &= stream_of[t] != stream || order.ordered(TaskId{t}, TaskId{task});
    if (!fits) continue;
    stream_of.push_back(stream);
    for_each_assignment(order, stream_of, std::max(streams, stream + 1), visit);
    stream_of.pop_back();
  }
}

// Small orders as rows of bits: row[a] has bit b if a happens before b. Ids are topological.
using Rows = std::vector<std::uint32_t>;

void close(Rows& rows) {
  for (std::size_t a = rows.size(); a-- > 0;)
    for (std::size_t b = a + 1; b < rows.size(); ++b)
      if (rows[a] >> b & 1) rows[a] |= rows[b];
}

// True if some choice of `count` waits, between any ordered tasks on different streams, gives with the
// streams exactly the order of the graph.
bool enough(std::size_t count, const Rows& wanted, const Rows& streams,
            const std::vector<std::pair<int, int>>& pairs, std::size_t first = 0) {
  Rows rows = streams;
  close(rows);
  if (rows == wanted) return true;
  if (count == 0) return false;
  for (std::size_t i = first; i < pairs.size(); ++i) {
    Rows more = streams;
    more[static_cast<std::size_t>(pairs[i].first)] |= 1U << pairs[i].second;
    if (enough(count - 1, wanted, more, pairs, i + 1)) return true;
  }
  return false;
}

// The fewest waits over all assignments and all choices of waits are those of the plan. `graph` has
// topological ids.
void expect_fewest_waits(const TaskGraph& graph) {
  const std::size_t waits = plan(graph, {}).wait_count();
  if (waits == 0) return;
  const Order order(graph);
  Rows wanted(graph.task_count());
  for (std::uint32_t a = 0; a < wanted.size(); ++a)
    for (std::uint32_t b = 0; b < wanted.size(); ++b)
      wanted[a] |= static_cast<std::uint32_t>(order.before(TaskId{a}, TaskId{b})) << b;
  std::vector<std::uint32_t> stream_of;
  bool possible = false;
  for_each_assignment(order, stream_of, 0, [&](const std::vector<std::uint32_t>& streams) {
    Rows on_streams(wanted.size());
    std::vector<std::pair<int, int>> pairs;
    for (std::uint32_t a = 0; a < wanted.size(); ++a)
      for (std::uint32_t b = a + 1; b < wanted.size(); ++b)
        if (wanted[a] >> b & 1) {
          if (streams[a] == streams[b])
            on_streams[a] |= 1U << b;
          else
            pairs.emplace_back(a, b);
        }
    EXPECT_FALSE(enough(waits - 1, wanted, on_streams, pairs));
    possible = possible || enough(waits, wanted, on_streams, pairs);
  });
  EXPECT_TRUE(possible);
}

TaskGraph graph_with_bits(std::uint32_t tasks, std::uint32_t bits) {
  TaskGraphBuilder builder;
  for (std::uint32_t t = 0; t < tasks; ++t) builder.add_task("t" + std::to_string(t));
  for (std::uint32_t b = 1; b < tasks; ++b)
    for (std::uint32_t a = 0; a < b; ++a, bits >>= 1)
      if (bits & 1) builder.add_edge(TaskId{a}, TaskId{b});
  return std::move(builder).build();
}

// Every DAG of up to five tasks is one of these, up to the names of its tasks.
TEST(FewestWaits, NoScheduleOfAnyGraphOfUpToFiveTasksHasFewerWaits) {
  for (std::uint32_t tasks = 1; tasks <= 5; ++tasks)
    for (std::uint32_t bits = 0; bits < 1U << tasks * (tasks - 1) / 2; ++bits)
      expect_fewest_waits(graph_with_bits(tasks, bits));
}

TEST(FewestWaits, NoScheduleOfRandomGraphsOfSixAndSevenTasksHasFewerWaits) {
  Random random(11);
  for (int i = 0; i < 600; ++i) {
    const auto bits =
        static_cast<std::uint32_t>(random.between(0, 0xffffffff) & random.between(0, 0xffffffff));
    expect_fewest_waits(graph_with_bits(i % 3 == 0 ? 7 : 6, bits));
  }
}

}  // namespace
}  // namespace nimble::testing
