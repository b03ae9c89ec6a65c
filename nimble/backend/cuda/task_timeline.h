#pragma once

#include <span>
#include <vector>

#include "nimble/backend/cuda/device_program.h"

namespace nimble::cuda {

// When each task runs in a replay of the schedule, by task: the schedule is captured once more, on the same
// streams with the same waits, with an event before and after each task that the device itself records. What
// the replays change outside is put back.
std::vector<TaskSpan> task_timeline(DeviceProgram& program, std::span<const at::Tensor> inputs);

}  // namespace nimble::cuda
