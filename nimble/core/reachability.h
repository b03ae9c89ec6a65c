#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nimble/core/task_graph.h"

namespace nimble {

// Answers "does a happen before b" for every pair of tasks of one graph.
//
// The graph is cut into chains, sequences of tasks each of which happens before the next; for each task and
// each chain the number of that chain's tasks that happen before it is kept. O(tasks * chains) memory,
// O(edges * chains) time to build, O(1) to ask: task graphs are long and narrow, so this stays small where a
// bit matrix would need tasks² bits. Of a graph too wide for `most_index_bytes` only the longest chains are
// kept; a question about a task on none of them is answered, just as exactly, by a search that ends wherever
// it meets a chain.
//
// Copies what it needs, so it outlives the graph. Immutable: any number of threads may ask.
class Reachability {
 public:
  static constexpr std::size_t kMostIndexBytes = std::size_t{512} << 20;

  explicit Reachability(const TaskGraph& graph, std::size_t most_index_bytes = kMostIndexBytes);

  // True if there is a path of at least one edge from `a` to `b`. Both must be tasks of the graph.
  bool happens_before(TaskId a, TaskId b) const {
    return is_indexed(a) ? ancestors_on(b, chain_of_[a.index()]) > place_in_[a.index()] : search(a, b);
  }

  // True if happens_before(task, …) needs no search.
  bool is_indexed(TaskId task) const { return chain_of_[task.index()] != kNoChain; }

  // By task t: the smallest p such that every task of `order` from position p on happens after t; the size of
  // `order` where there is none or it is not known without a search. `order` must be a topological order of
  // the graph. O(tasks * chains).
  std::vector<std::uint32_t> all_after_from(std::span<const TaskId> order) const;

  // By task t: a p, the largest unless a search were needed, such that every task of `order` before position
  // p happens before t. `order` must be a topological order of the graph. O(tasks * chains).
  std::vector<std::uint32_t> all_before_until(std::span<const TaskId> order) const;

 private:
  static constexpr std::uint32_t kNoChain = 0xffffffff;

  void keep_chains(std::vector<std::vector<TaskId>> chains, std::size_t most_index_bytes);
  void count_ancestors(const TaskGraph& graph);
  bool search(TaskId a, TaskId b) const;

  std::uint32_t ancestors_on(TaskId task, std::size_t chain) const {
    return ancestors_[task.index() * chains_.size() + chain];
  }

  std::vector<std::vector<TaskId>> chains_;  // the kept ones
  std::vector<std::uint32_t> chain_of_;      // by task
  std::vector<std::uint32_t> place_in_;      // by task: how many of its chain's tasks come before it
  std::vector<std::uint32_t>
      ancestors_;  // by task, then chain: how many of the chain's tasks happen before it

  // For the search alone: empty where every task is on a kept chain.
  TaskGraph graph_;
  std::vector<std::uint32_t> position_;
};

}  // namespace nimble
