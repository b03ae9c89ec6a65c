#include "nimble/core/critical_path.h"

#include <algorithm>
#include <optional>

namespace nimble {

std::vector<TaskId> critical_path(const TaskGraph& graph, const Machine& machine) {
  std::vector<Nanoseconds> finish(graph.task_count());
  std::vector<std::optional<TaskId>> latest(graph.task_count());  // by task: what it had to wait for
  std::optional<TaskId> last;
  for (const TaskId task : graph.topological_order()) {
    Nanoseconds start = 0;
    for (const TaskId before : graph.predecessors(task)) {
      if (latest[task.index()] && finish[before.index()] <= start) continue;
      latest[task.index()] = before;
      start = finish[before.index()];
    }
    finish[task.index()] = start + graph.cost(task).value_or(machine.default_cost) + machine.node_cost;
    if (!last || finish[task.index()] > finish[last->index()]) last = task;
  }
  std::vector<TaskId> path;
  for (auto task = last; task; task = latest[task->index()]) path.push_back(*task);
  std::ranges::reverse(path);
  return path;
}

}  // namespace nimble
