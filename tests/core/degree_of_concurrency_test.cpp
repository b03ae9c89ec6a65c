#include "nimble/core/degree_of_concurrency.h"

#include <gtest/gtest.h>

#include "nimble/core/minimum_equivalent_graph.h"
#include "tests/core/brute_force.h"
#include "tests/core/model_graphs.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

TEST(DegreeOfConcurrency, OfNothingIsZero) { EXPECT_EQ(degree_of_concurrency(TaskGraph()), 0); }

TEST(DegreeOfConcurrency, OfIndependentTasksIsTheirNumber) {
  TaskGraphBuilder builder;
  for (int i = 0; i < 40; ++i) builder.add_task("t" + std::to_string(i));
  EXPECT_EQ(degree_of_concurrency(std::move(builder).build()), 40);
}

TEST(DegreeOfConcurrency, IsSmallerThanTheNumberOfStreamsWhereBranchesFollowOneAnother) {
  // Two forks in a row: four branches that need streams of their own, two of which can run side by side.
  //    ╱▶ b ╲     ╱▶ e ╲
  // a ─▶ c ─▶ d ─▶ f ─▶ g
  TaskGraphBuilder builder;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) builder.add_task(name);
  for (auto [u, v] :
       {std::pair{0U, 1U}, {0U, 2U}, {1U, 3U}, {2U, 3U}, {3U, 4U}, {3U, 5U}, {4U, 6U}, {5U, 6U}})
    builder.add_edge(TaskId{u}, TaskId{v});
  EXPECT_EQ(degree_of_concurrency(std::move(builder).build()), 2);
}

TEST(DegreeOfConcurrency, IsFoundInBigGraphs) {
  EXPECT_EQ(degree_of_concurrency(branchy(20'000, 64).graph), 64);
  EXPECT_EQ(degree_of_concurrency(inception_like(50).graph), 4);
  EXPECT_EQ(degree_of_concurrency(training_like(300).graph),
            300);  // all weight gradients can wait for the end
}

// The antichain shows that it is not less; that it is not more was counted as paths, so both bounds must
// agree on the graph and on its reduction, whose edges and therefore paths are different.
TEST(LargestAntichain, HoldsUnorderedTasksOnly) {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (Shape shape : kShapes) {
      Random random(seed);
      const TaskGraph graph = random_graph(random, shape, random.between(50, 600));
      const Order order(graph);
      const auto tasks = largest_antichain(graph);
      for (TaskId a : tasks)
        for (TaskId b : tasks) EXPECT_FALSE(order.before(a, b));
      EXPECT_EQ(largest_antichain(minimum_equivalent_graph(graph)).size(), tasks.size());
    }
}

}  // namespace
}  // namespace nimble::testing
