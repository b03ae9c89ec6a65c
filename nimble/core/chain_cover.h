#pragma once

#include <cstdint>
#include <vector>

#include "nimble/core/task_graph.h"

namespace nimble {

// The graph cut into chains: every task is on exactly one, and each task of a chain happens before the next.
// A chain may pass through tasks that are on other chains to get from one of its tasks to the next.
struct ChainCover {
  std::vector<std::vector<TaskId>> chains;
  std::vector<std::uint32_t> passing;  // by edge, in order of start and end: how many chains go along it
};

// Greedy: not always the fewest chains, but close on task graphs. Deterministic; O(tasks + edges).
ChainCover greedy_chain_cover(const TaskGraph& graph);

}  // namespace nimble
