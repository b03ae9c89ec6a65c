#include "nimble/core/reachability.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "nimble/core/chain_cover.h"
#include "nimble/core/degree_of_concurrency.h"
#include "tests/core/brute_force.h"
#include "tests/core/model_graphs.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

// Which pairs an index that may use `most_bytes` gets wrong.
std::size_t wrong_answers(const TaskGraph& graph, std::size_t most_bytes) {
  const Order order(graph);
  const Reachability reachability(graph, most_bytes);
  std::size_t wrong = 0;
  for (std::uint32_t a = 0; a < graph.task_count(); ++a)
    for (std::uint32_t b = 0; b < graph.task_count(); ++b)
      wrong += reachability.happens_before(TaskId{a}, TaskId{b}) != order.before(TaskId{a}, TaskId{b});
  return wrong;
}

std::size_t indexed_tasks(const TaskGraph& graph, std::size_t most_bytes) {
  const Reachability reachability(graph, most_bytes);
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.topological_order(), [&](TaskId task) { return reachability.is_indexed(task); }));
}

std::size_t tasks_on_longest_chains(const TaskGraph& graph, std::size_t chains) {
  std::vector<std::size_t> lengths;
  for (const auto& chain : greedy_chain_cover(graph).chains) lengths.push_back(chain.size());
  std::ranges::sort(lengths, std::greater());
  lengths.resize(std::min(lengths.size(), chains));
  return std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
}

TEST(Reachability, AnswersForEveryPair) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (Shape shape : kShapes) {
      Random random(seed);
      const TaskGraph graph = random_graph(random, shape, random.between(1, 120));
      EXPECT_EQ(wrong_answers(graph, Reachability::kMostIndexBytes), 0)
          << name_of(shape) << ", seed " << seed;
    }
}

TEST(Reachability, IsExactWithAnIndexTooSmallForAllChains) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (Shape shape : kShapes)
      for (std::size_t chains : {0, 1, 3}) {
        Random random(seed);
        const TaskGraph graph = random_graph(random, shape, random.between(1, 80));
        const std::size_t bytes = chains * graph.task_count() * 4;
        EXPECT_EQ(indexed_tasks(graph, bytes), tasks_on_longest_chains(graph, chains));
        EXPECT_EQ(wrong_answers(graph, bytes), 0) << name_of(shape) << ", seed " << seed;
      }
}

TEST(Reachability, KnowsFromWhereOnEverythingIsAfterATask) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (Shape shape : kShapes) {
      Random random(seed);
      const TaskGraph graph = random_graph(random, shape, random.between(1, 60));
      const auto launch = graph.topological_order();
      const Order order(graph);
      const auto from = Reachability(graph).all_after_from(launch);
      const auto until = Reachability(graph).all_before_until(launch);
      const auto cautious_from = Reachability(graph, 8 * graph.task_count()).all_after_from(launch);
      const auto cautious_until = Reachability(graph, 8 * graph.task_count()).all_before_until(launch);
      for (std::uint32_t t = 0; t < graph.task_count(); ++t) {
        std::size_t first = launch.size(), last = 0;
        while (first > 0 && order.before(TaskId{t}, launch[first - 1])) --first;
        while (last < launch.size() && order.before(launch[last], TaskId{t})) ++last;
        EXPECT_EQ(from[t], first);
        EXPECT_EQ(until[t], last);
        EXPECT_GE(cautious_from[t], first);
        EXPECT_LE(cautious_until[t], last);
      }
    }
}

TEST(ChainCover, PutsEveryTaskOnOneChainInOrder) {
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    for (Shape shape : kShapes) {
      Random random(seed);
      const TaskGraph graph = random_graph(random, shape, random.between(1, 80));
      const Order order(graph);
      std::vector<int> times_covered(graph.task_count());
      for (const auto& chain : greedy_chain_cover(graph).chains)
        for (std::size_t i = 0; i < chain.size(); ++i) {
          ++times_covered[chain[i].index()];
          EXPECT_TRUE(i == 0 || order.before(chain[i - 1], chain[i]));
        }
      EXPECT_EQ(times_covered, std::vector<int>(graph.task_count(), 1));
    }
}

TEST(ChainCover, TakesFewMoreChainsThanTheGraphIsWide) {
  for (const auto& [graph, buffers] :
       {inception_like(11), nasnet_like(12), training_like(40), branchy(3000, 32)}) {
    const std::size_t width = degree_of_concurrency(graph);
    EXPECT_GE(greedy_chain_cover(graph).chains.size(), width);
    EXPECT_LE(greedy_chain_cover(graph).chains.size(), width + width / 2);
  }
}

}  // namespace
}  // namespace nimble::testing
