#include "nimble/kernels/cuda/launch.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "nimble/kernels/cuda/kernel_compiler.h"

namespace nimble::kernels {
namespace {

// Loaded kernels stay loaded as long as the process lives: graphs may hold them.
cudaKernel_t loaded(const KernelSource& kernel) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, cudaKernel_t> kernels;
  static const DiskCache cache = DiskCache::of_user();

  const auto* device = at::cuda::getCurrentDeviceProperties();
  const int arch = device->major * 10 + device->minor;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] =
      kernels.try_emplace({arch, (kernel.contract ? "contract\n" : "exact\n") + kernel.text}, nullptr);
  if (!is_new) return place->second;
  try {
    const std::string cubin = cubin_of(kernel, arch, cache);
    cudaLibrary_t library = nullptr;
    C10_CUDA_CHECK(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    C10_CUDA_CHECK(cudaLibraryGetKernel(&place->second, library, KernelSource::kName));
  } catch (...) {
    kernels.erase(place);
    throw;
  }
  return place->second;
}

}  // namespace

void launch(const KernelSource& kernel, std::span<void* const> pointers) {
  if (kernel.blocks == 0) return;
  std::vector<void*> arguments;
  for (void* const& pointer : pointers) arguments.push_back(const_cast<void**>(&pointer));
  C10_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(loaded(kernel)), dim3(kernel.blocks),
                                  dim3(kernel.threads), arguments.data(), 0,
                                  c10::cuda::getCurrentCUDAStream()));
}

}  // namespace nimble::kernels
