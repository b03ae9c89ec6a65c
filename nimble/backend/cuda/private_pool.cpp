#include "nimble/backend/cuda/private_pool.h"

#include <ATen/cuda/MemPool.h>

#include <algorithm>

namespace nimble::cuda {
namespace caching = c10::cuda::CUDACachingAllocator;

PrivatePool::PrivatePool(c10::DeviceIndex device)
    : device_(device), id_(at::cuda::MemPool::graph_pool_handle(/*is_user_created=*/false)) {}

// PyTorch returns the memory when its cache is emptied next, by a user or because memory is short.
PrivatePool::~PrivatePool() {
  if (used_) caching::releasePool(device_, id_);
}

PrivatePool::Use::Use(PrivatePool& pool, std::vector<cudaStream_t> streams) : pool_(pool) {
  std::sort(streams.begin(), streams.end());
  caching::beginAllocateToPool(pool_.device_, pool_.id_, [streams = std::move(streams)](cudaStream_t stream) {
    return std::binary_search(streams.begin(), streams.end(), stream);
  });
  pool_.used_ = true;
}

PrivatePool::Use::~Use() { caching::endAllocateToPool(pool_.device_, pool_.id_); }

}  // namespace nimble::cuda
