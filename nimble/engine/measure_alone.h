#pragma once

#include <span>

#include "nimble/core/task_graph.h"
#include "nimble/torch/program.h"

namespace nimble {

// How long these tasks take, one after the other on one stream and with nothing beside them: the best of
// several runs. Tensors that other tasks make are made up; those outside are read where they are, and nothing
// outside may be written.
Nanoseconds measure_alone(std::span<const Buffer> buffers, std::span<const Task> tasks);

}  // namespace nimble
