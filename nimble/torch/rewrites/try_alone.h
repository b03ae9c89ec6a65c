#pragma once

#include <span>

#include "nimble/torch/program.h"

namespace nimble {

// Runs a task once on memory of its own, filled with anything: nobody sees what it computes. A convolution
// only lays out its result, as in record_forms. Throws what its operator throws, and Error where a result is
// laid out otherwise than the task says, or is a view of what it was given although the task says nothing of
// that.
void try_alone(const Task& task, std::span<const Buffer> buffers);

}  // namespace nimble
