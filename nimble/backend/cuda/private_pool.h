#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <vector>

namespace nimble::cuda {

// A pool of PyTorch's caching allocator for what a capture allocates beside the plan. Its memory is nobody
// else's for as long as the pool lives, so a graph may go on using blocks that were freed after the capture.
class PrivatePool {
 public:
  explicit PrivatePool(c10::DeviceIndex device);
  ~PrivatePool();
  PrivatePool(const PrivatePool&) = delete;
  PrivatePool& operator=(const PrivatePool&) = delete;

  // While it lives, allocations on these streams come from the pool; all other streams go on as before.
  class Use {
   public:
    Use(PrivatePool& pool, std::vector<cudaStream_t> streams);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    PrivatePool& pool_;
  };

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t id_;
  bool used_ = false;
};

}  // namespace nimble::cuda
