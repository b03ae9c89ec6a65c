#pragma once

#include <optional>
#include <vector>

#include "nimble/core/task_graph.h"

namespace nimble {

// A set of edges of which no two start at the same task and no two end at the same task.
struct Matching {
  std::vector<std::optional<TaskId>> next;      // next[u] = v for each matched edge (u, v)
  std::vector<std::optional<TaskId>> previous;  // previous[v] = u
  std::size_t size = 0;
};

// A largest such set, by Hopcroft–Karp: O(edges * sqrt(tasks)) at worst, a few passes over the edges of a
// task graph. Where several are largest, the same one is found every time.
Matching maximum_matching(const TaskGraph& graph);

}  // namespace nimble
