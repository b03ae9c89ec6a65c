#include "nimble/core/matching.h"

#include <gtest/gtest.h>

#include "tests/core/brute_force.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

// Tasks such that every edge starts at a chosen start or ends at a chosen end, found by König's construction
// from the matching. No matching has more edges than such a cover has choices, so one of the same size proves
// it largest.
std::size_t cover_size(const TaskGraph& graph, const Matching& matching) {
  std::vector<bool> start_reached(graph.task_count()), end_reached(graph.task_count());
  std::vector<TaskId> open;
  for (std::uint32_t t = 0; t < graph.task_count(); ++t)
    if (!matching.next[t]) {
      start_reached[t] = true;
      open.push_back(TaskId{t});
    }
  while (!open.empty()) {
    const TaskId u = open.back();
    open.pop_back();
    for (TaskId v : graph.successors(u)) {
      if (end_reached[v.index()]) continue;
      end_reached[v.index()] = true;
      const auto w = matching.previous[v.index()];
      if (w && !start_reached[w->index()]) {
        start_reached[w->index()] = true;
        open.push_back(*w);
      }
    }
  }
  for (const Edge& edge : edges_of(graph))
    EXPECT_TRUE(!start_reached[edge.before.index()] || end_reached[edge.after.index()])
        << "an edge is not covered";
  std::size_t size = 0;
  for (std::size_t t = 0; t < graph.task_count(); ++t) size += !start_reached[t] + end_reached[t];
  return size;
}

TEST(Matching, OfTheEmptyGraphIsEmpty) { EXPECT_EQ(maximum_matching(TaskGraph()).size, 0); }

TEST(Matching, UndoesAGreedyChoiceThatBlocksAnother) {
  // a ─▶ c      Taking a─▶c first leaves nothing for b.
  //  ╲─▶ d
  // b ─▶ c
  TaskGraphBuilder builder;
  for (const char* name : {"a", "b", "c", "d"}) builder.add_task(name);
  builder.add_edge(TaskId{0}, TaskId{2});
  builder.add_edge(TaskId{0}, TaskId{3});
  builder.add_edge(TaskId{1}, TaskId{2});
  const Matching matching = maximum_matching(std::move(builder).build());
  EXPECT_EQ(matching.size, 2);
  EXPECT_EQ(matching.next[0], TaskId{3});
  EXPECT_EQ(matching.next[1], TaskId{2});
}

TEST(Matching, IsMadeOfEdgesThatShareNoTaskOnEitherSide) {
  for (Shape shape : kShapes) {
    Random random(3);
    const TaskGraph graph = random_graph(random, shape, 500);
    const Matching matching = maximum_matching(graph);
    std::size_t size = 0;
    for (std::uint32_t t = 0; t < graph.task_count(); ++t) {
      if (!matching.next[t]) continue;
      ++size;
      const auto successors = graph.successors(TaskId{t});
      EXPECT_TRUE(std::binary_search(successors.begin(), successors.end(), *matching.next[t]));
      EXPECT_EQ(matching.previous[matching.next[t]->index()], TaskId{t});
    }
    EXPECT_EQ(matching.size, size);
  }
}

TEST(Matching, HasACoverOfItsSizeThatProvesItLargest) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (Shape shape : kShapes) {
      Random random(seed);
      const TaskGraph graph = random_graph(random, shape, random.between(100, 2000));
      const Matching matching = maximum_matching(graph);
      EXPECT_EQ(cover_size(graph, matching), matching.size) << name_of(shape) << ", seed " << seed;
    }
}

TEST(Matching, FindsVeryLongAugmentingPaths) {
  // Each start reaches its own end and the next one; the last start reaches the first end alone. Once
  // everyone has taken its own end, all must move on by one: s0 ─▶ e0 e1,  s1 ─▶ e1 e2,  s2 ─▶ e2 e3,  …,  sn
  // ─▶ e0
  constexpr std::uint32_t kPairs = 20'000;
  TaskGraphBuilder builder;
  for (std::uint32_t i = 0; i < 2 * kPairs; ++i) builder.add_task("t" + std::to_string(i));
  for (std::uint32_t i = 0; i + 1 < kPairs; ++i) {
    builder.add_edge(TaskId{i}, TaskId{kPairs + i});
    builder.add_edge(TaskId{i}, TaskId{kPairs + i + 1});
  }
  builder.add_edge(TaskId{kPairs - 1}, TaskId{kPairs});
  EXPECT_EQ(maximum_matching(std::move(builder).build()).size, kPairs);
}

}  // namespace
}  // namespace nimble::testing
