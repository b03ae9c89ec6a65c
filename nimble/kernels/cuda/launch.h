#pragma once

#include <span>

#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// Launches a kernel on the current stream of the current device, compiling and loading it before its first
// time there. `pointers` are its arguments. A kernel must have run once before a capture meets it.
void launch(const KernelSource& kernel, std::span<void* const> pointers);

}  // namespace nimble::kernels
