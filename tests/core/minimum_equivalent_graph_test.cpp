#include "nimble/core/minimum_equivalent_graph.h"

#include <gtest/gtest.h>

#include "tests/core/brute_force.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

TaskGraph graph_of(std::size_t tasks, const std::vector<Edge>& edges) {
  TaskGraphBuilder builder;
  for (std::size_t t = 0; t < tasks; ++t) builder.add_task("t" + std::to_string(t));
  for (const Edge& edge : edges) builder.add_edge(edge.before, edge.after);
  return std::move(builder).build();
}

constexpr TaskId a{0}, b{1}, c{2}, d{3};

TEST(MinimumEquivalentGraph, DropsAnEdgeWithAWayRound) {
  // a ─▶ b ─▶ c
  //  ╲──────╱
  const TaskGraph graph = graph_of(3, {{a, b}, {b, c}, {a, c}});
  EXPECT_EQ(edges_of(minimum_equivalent_graph(graph)), (std::vector<Edge>{{a, b}, {b, c}}));
}

TEST(MinimumEquivalentGraph, KeepsADiamond) {
  const TaskGraph graph = graph_of(4, {{a, b}, {a, c}, {b, d}, {c, d}});
  EXPECT_EQ(minimum_equivalent_graph(graph), graph);
}

TEST(MinimumEquivalentGraph, OfTheEmptyGraphIsEmpty) {
  EXPECT_EQ(minimum_equivalent_graph(TaskGraph()), TaskGraph());
}

TEST(MinimumEquivalentGraph, KeepsNamesAndCosts) {
  Random random(1);
  const TaskGraph graph = random_graph(random, Shape::kDense, 30), reduced = minimum_equivalent_graph(graph);
  ASSERT_LT(reduced.edge_count(), graph.edge_count());
  for (std::uint32_t t = 0; t < 30; ++t) {
    EXPECT_EQ(reduced.name(TaskId{t}), graph.name(TaskId{t}));
    EXPECT_EQ(reduced.cost(TaskId{t}), graph.cost(TaskId{t}));
  }
}

TEST(MinimumEquivalentGraph, OfACompleteOrderIsAChain) {
  std::vector<Edge> edges;
  for (std::uint32_t v = 0; v < 300; ++v)
    for (std::uint32_t u = 0; u < v; ++u) edges.push_back({TaskId{u}, TaskId{v}});
  const TaskGraph reduced = minimum_equivalent_graph(graph_of(300, edges));
  EXPECT_EQ(reduced.edge_count(), 299);
  for (std::uint32_t v = 1; v < 300; ++v) EXPECT_EQ(reduced.predecessors(TaskId{v}).front(), TaskId{v - 1});
}

// More than 64 long edges are open at any time, so their bits fill several words, each of them more than
// once.
TEST(MinimumEquivalentGraph, HandlesManyLongEdgesAtOnce) {
  Random random(7);
  std::vector<Edge> edges;
  for (std::uint32_t v = 5; v < 2000; ++v) {
    edges.push_back({TaskId{v - static_cast<std::uint32_t>(random.between(1, 5))}, TaskId{v}});
    if (v > 400) edges.push_back({TaskId{v - static_cast<std::uint32_t>(random.between(2, 400))}, TaskId{v}});
  }
  const TaskGraph graph = graph_of(2000, edges);
  const auto expected = transitive_reduction(graph);
  ASSERT_LT(expected.size(), graph.edge_count());
  EXPECT_EQ(edges_of(minimum_equivalent_graph(graph)), expected);
}

TEST(MinimumEquivalentGraph, IsTheSameInSlicesOfLittleMemory) {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (Shape shape : kShapes) {
      Random random(seed);
      const TaskGraph graph = random_graph(random, shape, 400);
      EXPECT_EQ(minimum_equivalent_graph(graph, 1), minimum_equivalent_graph(graph)) << name_of(shape);
    }
}

}  // namespace
}  // namespace nimble::testing
