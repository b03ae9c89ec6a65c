#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "nimble/core/memory_plan.h"
#include "nimble/core/task_graph.h"

// Random graphs and buffers for property tests. The same seed gives the same value on every machine: only the
// engine of <random> is used, since its distributions differ between standard libraries.
namespace nimble::testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  // From `low` to `high`, both included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + engine_() % (high - low + 1); }
  bool chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1.0p-53 < p; }

  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[between(0, i - 1)]);
  }

 private:
  std::mt19937_64 engine_;
};

enum class Shape { kChains, kTree, kSeriesParallel, kLayered, kDense, kSparse, kDisconnected };
inline constexpr std::array kShapes = {Shape::kChains,      Shape::kTree,  Shape::kSeriesParallel,
                                       Shape::kLayered,     Shape::kDense, Shape::kSparse,
                                       Shape::kDisconnected};

inline const char* name_of(Shape shape) {
  constexpr std::array names = {"chains", "tree",   "series-parallel", "layered",
                                "dense",  "sparse", "disconnected"};
  return names[static_cast<std::size_t>(shape)];
}

namespace detail {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// Splits the tasks [first, last) until single tasks are left: halves one after the other, where every sink of
// the first half precedes every source of the second, or side by side.
inline void series_parallel(Random& random, std::uint32_t first, std::uint32_t last, Pairs& edges,
                            std::vector<std::uint32_t>& sources, std::vector<std::uint32_t>& sinks) {
  if (last - first == 1) {
    sources = sinks = {first};
    return;
  }
  const auto middle = static_cast<std::uint32_t>(random.between(first + 1, last - 1));
  std::vector<std::uint32_t> left_sinks, right_sources;
  series_parallel(random, first, middle, edges, sources, left_sinks);
  series_parallel(random, middle, last, edges, right_sources, sinks);
  if (random.chance(0.7) && left_sinks.size() * right_sources.size() <= 64) {
    for (std::uint32_t u : left_sinks)
      for (std::uint32_t v : right_sources) edges.emplace_back(u, v);
  } else {
    sources.insert(sources.end(), right_sources.begin(), right_sources.end());
    sinks.insert(sinks.end(), left_sinks.begin(), left_sinks.end());
  }
}

// Edges always go from a smaller to a larger number.
inline Pairs random_edges(Random& random, Shape shape, std::uint32_t n) {
  Pairs edges;
  const auto below = [&](std::uint32_t v) { return static_cast<std::uint32_t>(random.between(0, v - 1)); };
  switch (shape) {
    case Shape::kChains: {  // a few chains, now and then an edge from one to another
      const auto chains = static_cast<std::uint32_t>(random.between(1, 4));
      for (std::uint32_t v = chains; v < n; ++v) {
        edges.emplace_back(v - chains, v);
        if (random.chance(0.2)) edges.emplace_back(below(v), v);
      }
      break;
    }
    case Shape::kTree: {  // out of one root, or into one
      const bool inward = random.chance(0.5);
      for (std::uint32_t v = 1; v < n; ++v) {
        const std::uint32_t u = below(v);
        inward ? edges.emplace_back(n - 1 - v, n - 1 - u) : edges.emplace_back(u, v);
      }
      break;
    }
    case Shape::kSeriesParallel: {
      std::vector<std::uint32_t> sources, sinks;
      if (n > 0) series_parallel(random, 0, n, edges, sources, sinks);
      break;
    }
    case Shape::kLayered: {  // each task after one to three of the layer before, with some longer skips
      const auto width = static_cast<std::uint32_t>(random.between(1, 2 + n / 4));
      for (std::uint32_t v = width; v < n; ++v) {
        const std::uint32_t layer = v / width * width;
        for (std::uint64_t k = random.between(1, 3); k > 0; --k)
          edges.emplace_back(layer - width + random.between(0, width - 1), v);
        if (random.chance(0.2))
          edges.emplace_back(static_cast<std::uint32_t>(random.between(0, layer - 1)), v);
      }
      break;
    }
    case Shape::kDense: {  // many edges, most of them implied; kept at about 16 for each task in big graphs
      const double p = std::min(0.6, 32.0 / n);
      for (std::uint32_t v = 1; v < n; ++v)
        for (std::uint32_t u = 0; u < v; ++u)
          if (random.chance(p)) edges.emplace_back(u, v);
      break;
    }
    case Shape::kSparse:
      for (std::uint32_t v = 1; v < n; ++v)
        for (std::uint64_t k = random.between(0, 2); k > 0; --k) edges.emplace_back(below(v), v);
      break;
    case Shape::kDisconnected: {  // islands, and tasks alone
      for (std::uint32_t v = 1, island = 0; v < n; ++v) {
        if (random.chance(0.15)) island = v;
        if (v > island && random.chance(0.8))
          edges.emplace_back(static_cast<std::uint32_t>(random.between(island, v - 1)), v);
        if (v > island && random.chance(0.3))
          edges.emplace_back(static_cast<std::uint32_t>(random.between(island, v - 1)), v);
      }
      break;
    }
  }
  return edges;
}

}  // namespace detail

// A graph of `tasks` tasks. Half of the graphs have ids that are not in topological order, half of the tasks
// a cost.
inline TaskGraph random_graph(Random& random, Shape shape, std::size_t tasks) {
  const auto n = static_cast<std::uint32_t>(tasks);
  detail::Pairs edges = detail::random_edges(random, shape, n);
  std::vector<std::uint32_t> id(n);
  for (std::uint32_t t = 0; t < n; ++t) id[t] = t;
  if (random.chance(0.5)) random.shuffle(id);
  TaskGraphBuilder builder;
  for (std::uint32_t t = 0; t < n; ++t)
    builder.add_task("t" + std::to_string(t), random.chance(0.5)
                                                  ? std::optional<Nanoseconds>(random.between(0, 10'000))
                                                  : std::nullopt);
  for (const auto& [u, v] : edges) builder.add_edge(TaskId{id[u]}, TaskId{id[v]});
  return std::move(builder).build();
}

// About one buffer for each task: written by it, read by some of its successors and now and then by any task.
inline std::vector<BufferSpec> random_buffers(Random& random, const TaskGraph& graph) {
  std::vector<BufferSpec> buffers;
  for (TaskId task : graph.topological_order()) {
    if (random.chance(0.1)) continue;
    std::vector<TaskId> uses = {task};
    for (TaskId next : graph.successors(task))
      if (random.chance(0.7)) uses.push_back(next);
    const TaskId any{static_cast<std::uint32_t>(random.between(0, graph.task_count() - 1))};
    if (random.chance(0.05) && std::find(uses.begin(), uses.end(), any) == uses.end()) uses.push_back(any);
    const std::uint64_t bytes =
        random.chance(0.05) ? 0 : random.between(1, std::uint64_t{1} << random.between(0, 20));
    buffers.push_back(
        {"b" + std::to_string(buffers.size()), bytes, std::uint64_t{1} << random.between(0, 8), uses});
  }
  return buffers;
}

}  // namespace nimble::testing
