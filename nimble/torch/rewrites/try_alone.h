#pragma once

#include <span>

#include "nimble/torch/program.h"

namespace nimble {

// Runs a task once on memory of its own, filled with anything: nobody sees what it computes. Throws what its
// operator throws, and Error where a result is laid out otherwise than the task says. The task must write
// nothing but its results.
void try_alone(const Task& task, std::span<const Buffer> buffers);

}  // namespace nimble
