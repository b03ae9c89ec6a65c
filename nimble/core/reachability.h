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
// bit matrix would need tasks² bits. Very wide graphs keep only as many chains as fit into `kMostIndexBytes`;
// what is on no kept chain is answered, just as exactly, by a search that stops at chains.
//
// Copies what it needs, so it outlives the graph. Immutable: any number of threads may ask.
class Reachability {
 public:
  static constexpr std::size_t kMostIndexBytes = std::size_t{512} << 20;

  explicit Reachability(const TaskGraph& graph, std::size_t most_index_bytes = kMostIndexBytes);

  // True if there is a path of at least one edge from `a` to `b`. Both must be tasks of the graph.
  bool happens_before(TaskId a, TaskId b) const;

  std::size_t task_count() const { return chain_of_.size(); }
  std::size_t chain_count() const { return chain_count_; }

 private:
  std::uint32_t ancestors_on(TaskId task, std::uint32_t chain) const {
    return ancestors_[task.index() * chain_count_ + chain];
  }

  std::size_t chain_count_ = 0;
  std::vector<std::uint32_t> chain_of_;  // by task; kNoChain where it found none
  std::vector<std::uint32_t> place_in_;  // by task: how many of its chain's tasks come before it
  std::vector<std::uint32_t>
      ancestors_;    // by task, then chain: how many of the chain's first tasks happen before
  TaskGraph graph_;  // for the search; empty where every task is on a chain
};

}  // namespace nimble
