#pragma once

#include <span>

#include "nimble/kernels/ahead.h"
#include "nimble/torch/program.h"

namespace nimble {

// Begins to compile, many at once and in this order, the kernels of our own that these tasks will need on
// `device`.
kernels::Compiling compile_kernels_ahead(std::span<const Task> tasks, c10::Device device);

}  // namespace nimble
