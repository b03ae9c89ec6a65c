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

}  // namespace nimble::cuda
