#pragma once

#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/core/simulate.h"

namespace nimble {

// What was measured of an executable, for a report.
struct Measured {
  std::vector<Nanoseconds> costs;  // by task, run alone: the median of some runs, without the clock's part
  Nanoseconds clock = 0;           // which was taken off each
  std::vector<TaskSpan> spans;     // by task, in one replay with a clock around each task
  double replay_nanoseconds = 0;   // median, from the call until all is done, without such clocks
  std::size_t replays = 0;         // that this is the median of
  Nanoseconds launch = 0;          // what handing a replay over to the device takes of the host
};

// Replays the executable a few dozen times on `inputs`, and puts back what that changes outside.
Measured measure(Executable& executable, std::span<const at::Tensor> inputs);

// Task costs that were measured include what it takes to start a task.
inline constexpr Machine kMeasuredMachine = {.node_cost = 0};

}  // namespace nimble
