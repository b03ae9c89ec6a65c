#pragma once

#include <span>
#include <string>
#include <vector>

#include "nimble/kernels/disk_cache.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// The compiled form of a kernel for a GPU of the architecture `arch` (90 is sm_90): from the cache, or
// compiled now and kept there.
std::string cubin_of(const KernelSource& kernel, int arch, const DiskCache& cache);

// The same for many, on as many threads as there are cores.
std::vector<std::string> compile_in_parallel(std::span<const KernelSource> kernels, int arch,
                                             const DiskCache& cache);

}  // namespace nimble::kernels
