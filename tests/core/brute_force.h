#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "nimble/core/memory_plan.h"
#include "nimble/core/schedule.h"
#include "nimble/core/task_graph.h"

// The obvious and slow way to everything that the planner computes, to test it against.
namespace nimble::testing {

inline std::vector<Edge> edges_of(const TaskGraph& graph) {
  std::vector<Edge> edges;
  for (std::uint32_t t = 0; t < graph.task_count(); ++t)
    for (TaskId next : graph.successors(TaskId{t})) edges.push_back({TaskId{t}, next});
  return edges;
}

// Which tasks happen before which: a matrix of bits.
class Order {
 public:
  explicit Order(const TaskGraph& graph) : Order(graph.task_count()) {
    const auto order = graph.topological_order();
    for (std::size_t i = order.size(); i-- > 0;)
      for (TaskId next : graph.successors(order[i])) {
        for (std::size_t w = 0; w < words_; ++w) row(order[i])[w] |= row(next)[w];
        row(order[i])[next.index() / 64] |= std::uint64_t{1} << next.index() % 64;
      }
  }

  bool before(TaskId a, TaskId b) const { return row(a)[b.index() / 64] >> b.index() % 64 & 1; }
  bool ordered(TaskId a, TaskId b) const { return before(a, b) || before(b, a); }
  std::size_t size() const { return size_; }
  friend bool operator==(const Order&, const Order&) = default;

 private:
  explicit Order(std::size_t size) : size_(size), words_((size + 63) / 64), bits_(size * words_) {}
  std::uint64_t* row(TaskId task) { return bits_.data() + task.index() * words_; }
  const std::uint64_t* row(TaskId task) const { return bits_.data() + task.index() * words_; }

  std::size_t size_, words_;
  std::vector<std::uint64_t> bits_;
};

// Every edge that has no task in between.
inline std::vector<Edge> transitive_reduction(const TaskGraph& graph) {
  const Order order(graph);
  std::vector<Edge> kept;
  for (const Edge& edge : edges_of(graph)) {
    bool has_way_round = false;
    for (TaskId middle : graph.successors(edge.before)) has_way_round |= order.before(middle, edge.after);
    if (!has_way_round) kept.push_back(edge);
  }
  return kept;
}

// The most edges no two of which share a start or an end: over all sets of ends. For graphs of up to 16
// tasks.
inline std::size_t largest_matching(const TaskGraph& graph) {
  std::vector<int> most(std::size_t{1} << graph.task_count(), -1);
  most[0] = 0;
  for (std::uint32_t t = 0; t < graph.task_count(); ++t) {
    std::vector<int> next = most;
    for (std::size_t ends = 0; ends < most.size(); ++ends)
      for (TaskId v : graph.successors(TaskId{t}))
        if (most[ends] >= 0 && !(ends >> v.index() & 1))
          next[ends | std::size_t{1} << v.index()] =
              std::max(next[ends | std::size_t{1} << v.index()], most[ends] + 1);
    most = std::move(next);
  }
  return static_cast<std::size_t>(*std::max_element(most.begin(), most.end()));
}

// The most tasks no two of which are ordered: over all sets of tasks. For graphs of up to 16 tasks.
inline std::size_t largest_unordered_set(const TaskGraph& graph) {
  const Order order(graph);
  const std::size_t n = graph.task_count();
  std::vector<std::uint32_t> conflicts(n);
  for (std::uint32_t a = 0; a < n; ++a)
    for (std::uint32_t b = 0; b < n; ++b)
      if (order.ordered(TaskId{a}, TaskId{b})) conflicts[a] |= 1U << b;
  int largest = 0;
  for (std::uint32_t set = 0; set < 1U << n; ++set) {
    bool unordered = true;
    for (std::uint32_t a = 0; a < n && unordered; ++a)
      unordered = !(set >> a & 1) || (conflicts[a] & set) == 0;
    if (unordered) largest = std::max(largest, std::popcount(set));
  }
  return static_cast<std::size_t>(largest);
}

// Pairs of buffers that share bytes though neither is done with before the other begins.
inline std::vector<std::pair<std::size_t, std::size_t>> overlapping_buffers(
    std::span<const BufferSpec> buffers, const MemoryPlan& plan, const Order& order) {
  const auto all_before = [&](const BufferSpec& a, const BufferSpec& b) {
    return std::all_of(a.uses.begin(), a.uses.end(), [&](TaskId x) {
      return std::all_of(b.uses.begin(), b.uses.end(), [&](TaskId y) { return order.before(x, y); });
    });
  };
  std::vector<std::pair<std::size_t, std::size_t>> wrong;
  for (std::size_t b = 0; b < buffers.size(); ++b)
    for (std::size_t a = 0; a < b; ++a) {
      const bool share = plan.offsets[a] < plan.offsets[b] + buffers[b].bytes &&
                         plan.offsets[b] < plan.offsets[a] + buffers[a].bytes && buffers[a].bytes > 0 &&
                         buffers[b].bytes > 0;
      if (share && !all_before(buffers[a], buffers[b]) && !all_before(buffers[b], buffers[a]))
        wrong.emplace_back(a, b);
    }
  return wrong;
}

// The most bytes live together when tasks run in this order.
inline std::uint64_t most_bytes_live(std::span<const BufferSpec> buffers,
                                     std::span<const TaskId> launch_order) {
  std::uint64_t most = 0;
  for (std::size_t now = 0; now < launch_order.size(); ++now) {
    std::uint64_t live = 0;
    for (const BufferSpec& buffer : buffers) {
      bool begun = false, ended = true;
      for (std::size_t p = 0; p < launch_order.size(); ++p)
        if (std::find(buffer.uses.begin(), buffer.uses.end(), launch_order[p]) != buffer.uses.end()) {
          begun |= p <= now;
          ended &= p < now;
        }
      if (begun && !ended) live += buffer.bytes;
    }
    most = std::max(most, live);
  }
  return most;
}

}  // namespace nimble::testing
