#include "nimble/core/chain_cover.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace nimble {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// The chains that wait at each task to be continued: a linked list for each task, over all chains. The
// longest chain is first and goes on with the successor that has the longest way ahead, so that a few chains
// hold most tasks.
class WaitingChains {
 public:
  explicit WaitingChains(std::size_t tasks) : first_(tasks, kNone), last_(tasks, kNone), count_(tasks) {}

  std::uint32_t count_at(TaskId task) const { return count_[task.index()]; }
  std::uint32_t longest_at(TaskId task) const { return first_[task.index()]; }

  // A new chain that starts at `task`.
  void start(TaskId task) {
    next_.push_back(kNone);
    length_.push_back(0);
    append(task, static_cast<std::uint32_t>(next_.size() - 1));
  }

  void lengthen(std::uint32_t chain) { ++length_[chain]; }

  // The longest chain stays behind unless all are moved or it is asked for.
  void move(std::uint32_t count, bool with_longest, TaskId from, TaskId to) {
    if (count == 0) return;
    const std::size_t f = from.index(), t = to.index();
    if (with_longest || count == count_[f]) {
      const std::uint32_t longest = take_first(f);
      if (count_[t] > 0 && length_[first_[t]] >= length_[longest])
        append(to, longest);
      else
        prepend(to, longest);
      --count;
    }
    if (count == 0) return;
    if (count == count_[f]) {  // the rest at once: joins see many chains again and again
      if (count_[t] > 0)
        next_[last_[t]] = first_[f];
      else
        first_[t] = first_[f];
      last_[t] = last_[f];
      count_[t] += std::exchange(count_[f], 0);
      return;
    }
    for (; count > 0; --count) append(to, with_longest ? take_first(f) : take_second(f));
  }

 private:
  void append(TaskId task, std::uint32_t chain) {
    const std::size_t t = task.index();
    next_[chain] = kNone;
    (count_[t]++ > 0 ? next_[last_[t]] : first_[t]) = chain;
    last_[t] = chain;
  }

  void prepend(TaskId task, std::uint32_t chain) {
    const std::size_t t = task.index();
    next_[chain] = first_[t];
    first_[t] = chain;
    if (count_[t]++ == 0) last_[t] = chain;
  }

  std::uint32_t take_first(std::size_t t) {
    const std::uint32_t chain = first_[t];
    first_[t] = --count_[t] > 0 ? next_[chain] : kNone;
    return chain;
  }

  std::uint32_t take_second(std::size_t t) {
    const std::uint32_t chain = next_[first_[t]];
    next_[first_[t]] = next_[chain];
    if (--count_[t] == 1) last_[t] = first_[t];
    return chain;
  }

  std::vector<std::uint32_t> first_, last_, count_;  // by task
  std::vector<std::uint32_t> next_, length_;         // by chain
};

// By task: the successor from which the longest path starts; the task itself where there is none.
std::vector<TaskId> longest_ways(const TaskGraph& graph) {
  std::vector<TaskId> way(graph.task_count());
  std::vector<std::uint32_t> length(graph.task_count());
  const auto order = graph.topological_order();
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::size_t t = order[i].index();
    way[t] = order[i];
    for (TaskId next : graph.successors(order[i]))
      if (length[next.index()] + 1 > length[t]) {
        length[t] = length[next.index()] + 1;
        way[t] = next;
      }
  }
  return way;
}

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
  const std::vector<TaskId> way = longest_ways(graph);
  const auto position = positions_in(graph.topological_order());
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
      waiting.move(count, way[from.index()] == task, from, task);
    };
    for (TaskId from : graph.predecessors(task)) {
      const std::uint32_t here = waiting.count_at(from);
      const double part = share(task) / wanted_by_those_to_come[from.index()];
      wanted_by_those_to_come[from.index()] -= share(task);
      const bool is_last = --successors_to_come[from.index()] == 0;
      take_along(is_last ? here : std::min(here, static_cast<std::uint32_t>(std::lround(part * here))), from);
    }
    // Without a share it takes one all the same, but not the only one from a successor that has a longer way
    // to go and nowhere else to take one from: of the two it had better start a new chain itself.
    for (TaskId from : graph.predecessors(task)) {
      const TaskId rival = way[from.index()];
      const bool can_spare = waiting.count_at(from) > 1 ||
                             position[rival.index()] <= position[task.index()] ||
                             graph.predecessors(rival).size() > 1;
      if (waiting.count_at(task) == 0 && waiting.count_at(from) > 0 && can_spare) take_along(1, from);
    }
    if (waiting.count_at(task) == 0) {
      waiting.start(task);
      cover.chains.emplace_back();
    }
    cover.chains[waiting.longest_at(task)].push_back(task);
    waiting.lengthen(waiting.longest_at(task));
  }
  return cover;
}

}  // namespace nimble
