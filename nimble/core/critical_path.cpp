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
    finish[task.index()] = add_times(start, time_of(graph, task, machine));
    if (!last || finish[task.index()] > finish[last->index()]) last = task;
  }
  std::vector<TaskId> path;
  for (auto task = last; task; task = latest[task->index()]) path.push_back(*task);
  std::ranges::reverse(path);
  return path;
}

std::vector<Nanoseconds> longest_paths_through(const TaskGraph& graph, const Machine& machine) {
  const auto order = graph.topological_order();
  std::vector<Nanoseconds> until(graph.task_count()), from(graph.task_count());  // both with the task itself
  for (const TaskId task : order) {
    Nanoseconds longest = 0;
    for (const TaskId before : graph.predecessors(task)) longest = std::max(longest, until[before.index()]);
    until[task.index()] = add_times(longest, time_of(graph, task, machine));
  }
  for (auto task = order.rbegin(); task != order.rend(); ++task) {
    Nanoseconds longest = 0;
    for (const TaskId after : graph.successors(*task)) longest = std::max(longest, from[after.index()]);
    from[task->index()] = add_times(longest, time_of(graph, *task, machine));
  }
  std::vector<Nanoseconds> through(graph.task_count());
  for (const TaskId task : order) {
    const Nanoseconds only_behind = from[task.index()] - time_of(graph, task, machine);
    through[task.index()] = add_times(until[task.index()], only_behind);
  }
  return through;
}

}  // namespace nimble
