#include "nimble/core/simulate.h"

#include <algorithm>
#include <unordered_map>

#include "nimble/core/error.h"
#include "nimble/core/step_walk.h"

namespace nimble {

Nanoseconds add_times(Nanoseconds a, Nanoseconds b) {
  Nanoseconds sum;
  if (__builtin_add_overflow(a, b, &sum))
    throw InvalidInput("[nimble::simulate] the costs of the tasks add up to more than 2^63 ns");
  return sum;
}

Nanoseconds time_of(const TaskGraph& graph, TaskId task, const Machine& machine) {
  return add_times(graph.cost(task).value_or(machine.default_cost), machine.node_cost);
}

Simulation simulate(const TaskGraph& graph, const Schedule& schedule, const Machine& machine) {
  Simulation result;
  result.tasks.resize(graph.task_count());
  std::vector<Nanoseconds> now(schedule.streams.size(), 0);  // by stream
  struct Recorded {
    StreamId stream;
    Nanoseconds time;
  };
  std::unordered_map<EventId, Recorded> recorded;
  const auto stuck = walk_steps(schedule, [&](StreamId stream, const Step& step) {
    Nanoseconds& time = now[stream.index()];
    if (const Run* run = std::get_if<Run>(&step)) {
      if (run->task.index() >= graph.task_count())
        throw Error(
            "[nimble::simulate] the schedule runs a task that the graph does not have: verify it first");
      const Nanoseconds end = add_times(time, time_of(graph, run->task, machine));
      result.tasks[run->task.index()] = {time, end};
      result.total = std::max(result.total, end);
      time = end;
    } else if (const RecordEvent* record = std::get_if<RecordEvent>(&step)) {
      recorded.try_emplace(record->event, Recorded{stream, time});
    } else {
      const Recorded& event = recorded.at(std::get<WaitEvent>(step).event);
      if (event.stream != stream) time = std::max(time, add_times(event.time, machine.sync_cost));
    }
  });
  if (!stuck.empty())
    throw Error("[nimble::simulate] stream " + std::to_string(stuck.front().stream.value) +
                " waits for ever: verify the schedule first");
  return result;
}

Nanoseconds LowerBounds::time(std::size_t streams) const {
  const auto n = static_cast<Nanoseconds>(std::max<std::size_t>(streams, 1));
  return std::max(critical_path, work / n + (work % n != 0));
}

LowerBounds lower_bounds(const TaskGraph& graph, const Machine& machine) {
  LowerBounds bounds;
  std::vector<Nanoseconds> finish(graph.task_count(), 0);
  for (TaskId task : graph.topological_order()) {
    Nanoseconds start = 0;
    for (TaskId before : graph.predecessors(task)) start = std::max(start, finish[before.index()]);
    const Nanoseconds cost = time_of(graph, task, machine);
    finish[task.index()] = add_times(start, cost);
    bounds.critical_path = std::max(bounds.critical_path, finish[task.index()]);
    bounds.work = add_times(bounds.work, cost);
  }
  return bounds;
}

}  // namespace nimble
