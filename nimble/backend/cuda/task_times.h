#pragma once

#include <span>
#include <vector>

#include "nimble/backend/cuda/device_program.h"

namespace nimble::cuda {

// How long each task takes on the device when nothing else runs, by task: the median of several runs, after
// one that is not counted. Leaves outside tensors and generators as they were.
//
// The tasks are captured one after the other with an event between any two. Timing them from the host instead
// would measure how fast the host launches.
std::vector<Nanoseconds> task_times(DeviceProgram& program, std::span<const at::Tensor> inputs);

// How much of each of these times is the event's own. An event between two kernels is a node of the graph
// like any other: so the same tasks are captured again without events between them, and what all took less is
// shared out evenly.
Nanoseconds clock_time(DeviceProgram& program, std::span<const at::Tensor> inputs);

}  // namespace nimble::cuda
