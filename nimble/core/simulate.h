#pragma once

#include <cstddef>
#include <vector>

#include "nimble/core/schedule.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// What running a schedule costs beyond its tasks. The defaults are what was measured on an H200 in a CUDA
// graph.
struct Machine {
  Nanoseconds node_cost = 530;  // added to every task
  Nanoseconds sync_cost =
      1000;  // from the end of a task to the start of one that waits for it on another stream
  Nanoseconds default_cost = 1000;  // of a task whose cost is not known
};

// How long the task takes on this machine, and two times one after the other. Both throw InvalidInput where
// that overflows.
Nanoseconds time_of(const TaskGraph& graph, TaskId task, const Machine& machine);
Nanoseconds add_times(Nanoseconds a, Nanoseconds b);

struct TaskTime {
  Nanoseconds start = 0, end = 0;
};

struct Simulation {
  std::vector<TaskTime> tasks;  // by task
  Nanoseconds total = 0;
};

// Runs the schedule in virtual time: a task starts as soon as its stream is free and everything it waits for
// is done. Throws Error if the schedule cannot run to its end (`verify` says why), InvalidInput if times
// overflow. O(steps).
Simulation simulate(const TaskGraph& graph, const Schedule& schedule, const Machine& machine = {});

// No schedule is faster than these, whatever its streams.
struct LowerBounds {
  Nanoseconds critical_path = 0;  // the longest path through the graph
  Nanoseconds work = 0;           // all tasks one after the other; on n streams no schedule beats work / n

  // For at most `streams` at a time: max(critical path, work / streams).
  Nanoseconds time(std::size_t streams) const;
};
LowerBounds lower_bounds(const TaskGraph& graph, const Machine& machine = {});

}  // namespace nimble
