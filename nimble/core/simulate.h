#pragma once

#include <span>
#include <vector>

#include "nimble/core/schedule.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// What a schedule costs beyond its tasks. The defaults are what was measured on an H200 inside a CUDA graph.
struct Machine {
  Nanoseconds node_cost = 530;   // added to every task
  Nanoseconds sync_cost = 1000;  // added to every wait that crosses streams
};

struct TaskTime {
  Nanoseconds start = 0, end = 0;
};

struct Simulation {
  std::vector<TaskTime> tasks;  // by task
  Nanoseconds total = 0;
};

// Runs the schedule in virtual time. Tasks without a cost count as `default_cost`. The schedule must verify.
Simulation simulate(const TaskGraph& graph, const Schedule& schedule, const Machine& machine = {},
                    Nanoseconds default_cost = 1000);

struct LowerBounds {
  Nanoseconds critical_path = 0;  // no schedule is faster than the longest path …
  Nanoseconds work = 0;           // … nor than all work spread evenly over the streams: work / parallelism
};
LowerBounds lower_bounds(const TaskGraph& graph, const Machine& machine = {}, Nanoseconds default_cost = 1000);

}  // namespace nimble
