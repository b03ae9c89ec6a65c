#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>

namespace nimble::cuda {

// Puts an allocator of ours in front of PyTorch's CUDA allocator, once for the process. On threads without an
// AllocationHook it hands every request straight on, so statistics, snapshots and settings stay PyTorch's.
// Throws Error where PyTorch was told to use cudaMallocAsync.
void install_planned_allocator();

// One block of device memory from which planned addresses are served, taken from PyTorch's caching allocator
// on the current stream, so that it shows in torch.cuda.memory_allocated. Whoever owns it waits for its last
// use before letting go.
class Arena {
 public:
  Arena(std::size_t bytes, c10::Device device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  char* data() const { return static_cast<char*>(memory_.get()); }
  std::size_t size() const { return size_; }

 private:
  c10::DataPtr memory_;
  std::size_t size_;
};

}  // namespace nimble::cuda
