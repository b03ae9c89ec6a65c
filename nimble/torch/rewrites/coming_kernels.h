#pragma once

#include "nimble/torch/program.h"

namespace nimble {

// Compiles, many at once, the kernels of our own that a program's tasks will need.
void compile_kernels_ahead(const Program& program);

}  // namespace nimble
