#include "nimble/core/chain_cover.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nimble {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// The chains that wait at each task to be continued: a linked list for each task, over all chains.
class WaitingChains {
 public:
  explicit WaitingChains(std::size_t tasks) : first_(tasks, kNone), last_(tasks, kNone), count_(tasks) {}

  std::uint32_t count_at(TaskId task) const { return count_[task.index()]; }

  std::uint32_t newest_at(TaskId task) const { return first_[task.index()]; }

  void put(std::uint32_t chain, TaskId task) {
    const std::size_t t = task.index();
    if (next_.size() <= chain) next_.resize(chain + 1, kNone);
    next_[chain] = first_[t];
    first_[t] = chain;
    if (count_[t]++ == 0) last_[t] = chain;
  }

  std::uint32_t take(TaskId task) {
    const std::size_t t = task.index();
    const std::uint32_t chain = first_[t];
    first_[t] = next_[chain];
    --count_[t];
    return chain;
  }

  void move(std::uint32_t count, TaskId from, TaskId to) {
    const std::size_t f = from.index(), t = to.index();
    if (count == 0) return;
    if (count < count_[f]) {
      for (; count > 0; --count) put(take(from), to);
      return;
    }
    next_[last_[f]] = count_[t] > 0 ? first_[t] : kNone;
    if (count_[t] == 0) last_[t] = last_[f];
    first_[t] = first_[f];
    count_[t] += count_[f];
    count_[f] = 0;
  }

 private:
  std::vector<std::uint32_t> first_, last_, count_;  // by task
  std::vector<std::uint32_t> next_;                  // by chain
};

// How many chains would do each task good: one for itself, or all that its successors ask for. A task asks
// its predecessors for equal shares.
std::vector<double> wanted_chains(const TaskGraph& graph) {
  std::vector<double> wanted(graph.task_count());
  const auto order = graph.topological_order();
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::size_t t = order[i].index();
    wanted[t] = std::max(1.0, wanted[t]);
    const auto before = graph.predecessors(order[i]);
    for (TaskId from : before) wanted[from.index()] += wanted[t] / static_cast<double>(before.size());
  }
  return wanted;
}

}  // namespace

// Chains wait at the task they have reached. Each successor that comes takes its share of them with it, and
// with one of them its place in a chain: so chains that meet in a join pass through it to the branches
// behind.
ChainCover greedy_chain_cover(const TaskGraph& graph) {
  const std::size_t n = graph.task_count();
  const std::vector<double> wanted = wanted_chains(graph);
  const auto share = [&](TaskId task) {
    return wanted[task.index()] / static_cast<double>(graph.predecessors(task).size());
  };
  std::vector<std::uint32_t> first_edge(n + 1), successors_to_come(n);
  std::vector<double> wanted_by_those_to_come(n);
  for (std::uint32_t t = 0; t < n; ++t) {
    const auto successors = graph.successors(TaskId{t});
    successors_to_come[t] = static_cast<std::uint32_t>(successors.size());
    first_edge[t + 1] = first_edge[t] + successors_to_come[t];
    for (TaskId next : successors) wanted_by_those_to_come[t] += share(next);
  }

  ChainCover cover;
  cover.passing.resize(graph.edge_count());
  WaitingChains waiting(n);
  for (TaskId task : graph.topological_order()) {
    const auto take_along = [&](std::uint32_t count, TaskId from) {
      if (count == 0) return;
      const auto successors = graph.successors(from);
      const auto edge = std::lower_bound(successors.begin(), successors.end(), task) - successors.begin();
      cover.passing[first_edge[from.index()] + static_cast<std::size_t>(edge)] += count;
      waiting.move(count, from, task);
    };
    for (TaskId from : graph.predecessors(task)) {
      const std::uint32_t here = waiting.count_at(from);
      const double part = share(task) / wanted_by_those_to_come[from.index()];
      wanted_by_those_to_come[from.index()] -= share(task);
      const bool is_last = --successors_to_come[from.index()] == 0;
      take_along(is_last ? here : std::min(here, static_cast<std::uint32_t>(std::lround(part * here))), from);
    }
    for (TaskId from : graph.predecessors(task))
      if (waiting.count_at(task) == 0 && waiting.count_at(from) > 0) take_along(1, from);
    if (waiting.count_at(task) == 0) {
      waiting.put(static_cast<std::uint32_t>(cover.chains.size()), task);
      cover.chains.emplace_back();
    }
    cover.chains[waiting.newest_at(task)].push_back(task);
  }
  return cover;
}

}  // namespace nimble
