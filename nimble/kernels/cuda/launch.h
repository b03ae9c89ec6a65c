#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "nimble/kernels/ahead.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// Launches a kernel on the current stream of the current device, compiling and loading it before its first
// time there. `pointers` are its first arguments, the result last; without memory for that, nothing is done.
// A kernel must have run once before a capture meets it.
void launch(const KernelSource& kernel, std::span<void* const> pointers);

// The same for a kernel whose one argument is a table, by value; without one, nothing is done.
void launch_with_table(const KernelSource& kernel, std::span<const std::uint64_t> table);

// The address of a tensor's elements, as an argument; none where it has no memory.
inline void* address_of(const at::Tensor& tensor) {
  return tensor.is_meta() ? nullptr : const_cast<void*>(tensor.const_data_ptr());
}

// Begins to compile, many at once and in this order, what the current device does not have yet, and loads it.
Compiling load_ahead(std::span<const KernelSource> kernels);

// While one exists on a thread, kernels that this thread would launch are collected instead: operators called
// with tensors without memory tell which kernels they need.
class KernelCollector {
 public:
  KernelCollector();
  ~KernelCollector();
  KernelCollector(const KernelCollector&) = delete;
  KernelCollector& operator=(const KernelCollector&) = delete;

  std::vector<KernelSource> kernels;
};

}  // namespace nimble::kernels
