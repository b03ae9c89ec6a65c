#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "nimble/kernels/kernel_source.h"

namespace nimble::testing {

// Runs a generated kernel on the host, as a GPU would, on tensors in host memory: the source itself, compiled
// by this build's C++ compiler, thread after thread. Only what names instructions of a GPU is replaced.
void run_on_host(const kernels::KernelSource& kernel, const std::vector<at::Tensor>& tensors);

// The same for a kernel whose one argument is a table.
void run_with_table_on_host(const kernels::KernelSource& kernel, std::span<const std::uint64_t> table);

}  // namespace nimble::testing
