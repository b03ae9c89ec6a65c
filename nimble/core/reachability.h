#pragma once

#include <cstdint>
#include <vector>

#include "nimble/core/task_graph.h"

namespace nimble {

// Answers "does a happen before b" for every pair of tasks of one graph.
//
// The graph is cut into chains; for each task and each chain the first task of that chain it reaches is kept.
// O(tasks * chains) memory, O(edges * chains) time to build, O(1) to ask: task graphs are long and narrow, so this
// stays small where a bit matrix would need tasks² bits. Copies what it needs: outlives the graph.
class Reachability {
 public:
  explicit Reachability(const TaskGraph& graph);

  // True if there is a path of at least one edge from `a` to `b`. Safe to ask from many threads.
  bool happens_before(TaskId a, TaskId b) const;

 private:
  std::size_t chain_count_ = 0;
};

}  // namespace nimble
