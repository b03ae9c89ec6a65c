#pragma once

#include <span>

#include "nimble/torch/program.h"

namespace nimble {

// Compiles, many at once, the kernels of our own that these tasks will need on `device`.
void compile_kernels_ahead(std::span<const Task> tasks, c10::Device device);

}  // namespace nimble
