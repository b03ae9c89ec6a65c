#include "nimble/core/reachability.h"

#include <algorithm>
#include <unordered_set>

#include "nimble/core/chain_cover.h"

namespace nimble {

Reachability::Reachability(const TaskGraph& graph, std::size_t most_index_bytes)
    : chain_of_(graph.task_count(), kNoChain), place_in_(graph.task_count()) {
  keep_chains(greedy_chain_cover(graph).chains, most_index_bytes);
  count_ancestors(graph);
  if (std::find(chain_of_.begin(), chain_of_.end(), kNoChain) == chain_of_.end()) return;
  graph_ = graph;
  position_ = positions_in(graph.topological_order());
}

void Reachability::keep_chains(std::vector<std::vector<TaskId>> chains, std::size_t most_index_bytes) {
  const std::size_t bytes_per_chain = std::max<std::size_t>(1, chain_of_.size() * sizeof(std::uint32_t));
  const std::size_t kept = std::min(chains.size(), most_index_bytes / bytes_per_chain);
  if (kept < chains.size())
    std::stable_sort(chains.begin(), chains.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
  chains.resize(kept);
  chains_ = std::move(chains);
  for (std::uint32_t c = 0; c < kept; ++c)
    for (std::uint32_t i = 0; i < chains_[c].size(); ++i) {
      chain_of_[chains_[c][i].index()] = c;
      place_in_[chains_[c][i].index()] = i;
    }
}

void Reachability::count_ancestors(const TaskGraph& graph) {
  const std::size_t width = chains_.size();
  ancestors_.resize(graph.task_count() * width);
  for (TaskId task : graph.topological_order()) {
    std::uint32_t* row = ancestors_.data() + task.index() * width;
    for (TaskId before : graph.predecessors(task)) {
      const std::uint32_t* other = ancestors_.data() + before.index() * width;
      for (std::size_t c = 0; c < width; ++c) row[c] = std::max(row[c], other[c]);
      if (!is_indexed(before)) continue;
      std::uint32_t& own = row[chain_of_[before.index()]];
      own = std::max(own, place_in_[before.index()] + 1);
    }
  }
}

// Forward from `a`, never past `b` in topological order. A task on a kept chain answers for all that follows
// it.
bool Reachability::search(TaskId a, TaskId b) const {
  std::unordered_set<TaskId> seen;
  std::vector<TaskId> open = {a};
  while (!open.empty()) {
    const TaskId task = open.back();
    open.pop_back();
    for (TaskId next : graph_.successors(task)) {
      if (next == b) return true;
      if (position_[next.index()] > position_[b.index()]) continue;
      if (is_indexed(next)) {
        if (happens_before(next, b)) return true;
      } else if (seen.insert(next).second) {
        open.push_back(next);
      }
    }
  }
  return false;
}

std::vector<std::uint32_t> Reachability::all_after_from(std::span<const TaskId> order) const {
  const auto end = static_cast<std::uint32_t>(order.size());
  std::vector<std::uint32_t> result(order.size(), end);
  // Going back through the order, the first task that does not come after the i-th of a chain decides for it;
  // the later ones of the chain are decided by then.
  std::vector<std::size_t> undecided(chains_.size());
  for (std::size_t c = 0; c < chains_.size(); ++c) undecided[c] = chains_[c].size();
  for (std::uint32_t p = end; p-- > 0;)
    for (std::size_t c = 0; c < chains_.size(); ++c)
      while (undecided[c] > ancestors_on(order[p], c)) result[chains_[c][--undecided[c]].index()] = p + 1;
  return result;
}

std::vector<std::uint32_t> Reachability::all_before_until(std::span<const TaskId> order) const {
  const auto position = positions_in(order);
  const auto end = static_cast<std::uint32_t>(order.size());
  std::uint32_t first_unindexed = 0;
  while (first_unindexed < end && is_indexed(order[first_unindexed])) ++first_unindexed;

  std::vector<std::uint32_t> result(order.size(), first_unindexed);
  for (TaskId task : order)
    for (std::size_t c = 0; c < chains_.size(); ++c) {
      const std::uint32_t before = ancestors_on(task, c);
      if (before < chains_[c].size())
        result[task.index()] = std::min(result[task.index()], position[chains_[c][before].index()]);
    }
  return result;
}

}  // namespace nimble
