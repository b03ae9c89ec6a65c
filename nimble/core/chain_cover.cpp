#include "nimble/core/chain_cover.h"

#include <cstdint>
#include <limits>

namespace nimble {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Which chains could be continued from each task: a linked list for each task, over all chains.
class OpenChains {
 public:
  explicit OpenChains(std::size_t tasks) : first_(tasks, kNone), last_(tasks, kNone) {}

  bool any_at(TaskId task) const { return first_[task.index()] != kNone; }

  void put(std::uint32_t chain, TaskId task) {
    if (next_.size() <= chain) next_.resize(chain + 1, kNone);
    next_[chain] = first_[task.index()];
    first_[task.index()] = chain;
    if (last_[task.index()] == kNone) last_[task.index()] = chain;
  }

  std::uint32_t take_newest(TaskId task) {
    const std::uint32_t chain = first_[task.index()];
    first_[task.index()] = next_[chain];
    if (first_[task.index()] == kNone) last_[task.index()] = kNone;
    return chain;
  }

  void move_all(TaskId from, TaskId to) {
    if (!any_at(from)) return;
    next_[last_[from.index()]] = first_[to.index()];
    if (!any_at(to)) last_[to.index()] = last_[from.index()];
    first_[to.index()] = first_[from.index()];
    first_[from.index()] = last_[from.index()] = kNone;
  }

 private:
  std::vector<std::uint32_t> first_, last_;  // by task
  std::vector<std::uint32_t> next_;          // by chain
};

}  // namespace

// A chain waits at its last task until a successor continues it. What still waits there when the last
// successor comes moves on with that successor without naming it: that is how a chain passes through a join,
// where many chains meet, to one of the branches behind.
std::vector<std::vector<TaskId>> greedy_chain_cover(const TaskGraph& graph) {
  std::vector<std::vector<TaskId>> chains;
  OpenChains open(graph.task_count());
  std::vector<std::uint32_t> successors_left(graph.task_count());
  for (TaskId task : graph.topological_order())
    successors_left[task.index()] = static_cast<std::uint32_t>(graph.successors(task).size());

  for (TaskId task : graph.topological_order()) {
    std::uint32_t mine = kNone;
    for (TaskId before : graph.predecessors(task)) {
      const bool is_last_successor = --successors_left[before.index()] == 0;
      if (mine == kNone && open.any_at(before)) mine = open.take_newest(before);
      if (is_last_successor) open.move_all(before, task);
    }
    if (mine == kNone) {
      mine = static_cast<std::uint32_t>(chains.size());
      chains.emplace_back();
    }
    chains[mine].push_back(task);
    open.put(mine, task);
  }
  return chains;
}

}  // namespace nimble
