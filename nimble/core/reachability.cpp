#include "nimble/core/reachability.h"

namespace nimble {

// Simple first version: one chain cover, greedily.
namespace {
constexpr std::uint32_t kNoChain = 0xffffffffU;
}

Reachability::Reachability(const TaskGraph& graph, std::size_t) {
  const std::size_t n = graph.task_count();
  chain_of_.assign(n, kNoChain);
  place_in_.assign(n, 0);
  std::vector<TaskId> tails;
  std::vector<std::uint32_t> lengths;
  for (TaskId task : graph.topological_order()) {
    std::uint32_t chain = static_cast<std::uint32_t>(tails.size());
    for (TaskId before : graph.predecessors(task))
      if (tails[chain_of_[before.index()]] == before) chain = chain_of_[before.index()];
    if (chain == tails.size()) {
      tails.push_back(task);
      lengths.push_back(0);
    }
    tails[chain] = task;
    chain_of_[task.index()] = chain;
    place_in_[task.index()] = lengths[chain]++;
  }
  chain_count_ = tails.size();
  ancestors_.assign(n * chain_count_, 0);
  for (TaskId task : graph.topological_order()) {
    std::uint32_t* row = ancestors_.data() + task.index() * chain_count_;
    for (TaskId before : graph.predecessors(task)) {
      const std::uint32_t* other = ancestors_.data() + before.index() * chain_count_;
      for (std::size_t c = 0; c < chain_count_; ++c) row[c] = std::max(row[c], other[c]);
      row[chain_of_[before.index()]] =
          std::max(row[chain_of_[before.index()]], place_in_[before.index()] + 1);
    }
  }
}

bool Reachability::happens_before(TaskId a, TaskId b) const {
  return ancestors_on(b, chain_of_[a.index()]) > place_in_[a.index()];
}

}  // namespace nimble
