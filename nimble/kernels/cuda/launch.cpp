#include "nimble/kernels/cuda/launch.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "nimble/kernels/cuda/dependent_launch.h"
#include "nimble/kernels/cuda/kernel_compiler.h"

namespace nimble::kernels {
namespace {

thread_local KernelCollector* collector = nullptr;

int current_arch() {
  const auto* device = at::cuda::getCurrentDeviceProperties();
  return device->major * 10 + device->minor;
}

// Kernels by architecture and source. They stay loaded as long as the process lives: graphs may hold them.
class LoadedKernels {
 public:
  static LoadedKernels& of_process() {
    static LoadedKernels kernels;
    return kernels;
  }

  const DiskCache& cache() const { return cache_; }

  std::optional<cudaKernel_t> find(const KernelSource& kernel, int arch) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(key(kernel, arch));
    return found == kernels_.end() ? std::nullopt : std::optional(found->second);
  }

  cudaKernel_t load(const KernelSource& kernel, int arch, const std::string& cubin) {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = kernels_.try_emplace(key(kernel, arch), nullptr);
    if (!is_new) return place->second;
    try {
      cudaLibrary_t library = nullptr;
      C10_CUDA_CHECK(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
      C10_CUDA_CHECK(cudaLibraryGetKernel(&place->second, library, KernelSource::kName));
    } catch (...) {
      kernels_.erase(place);
      throw;
    }
    return place->second;
  }

 private:
  static std::pair<int, std::string> key(const KernelSource& kernel, int arch) {
    return {arch, (kernel.contract ? "contract\n" : "exact\n") + kernel.text};
  }

  std::mutex mutex_;
  std::map<std::pair<int, std::string>, cudaKernel_t> kernels_;
  DiskCache cache_ = DiskCache::of_user();
};

cudaKernel_t loaded(const KernelSource& kernel) {
  auto& kernels = LoadedKernels::of_process();
  const int arch = current_arch();
  if (const auto known = kernels.find(kernel, arch)) return *known;
  return kernels.load(kernel, arch, cubin_of(kernel, arch, kernels.cache()));
}

}  // namespace

KernelCollector::KernelCollector() { collector = this; }
KernelCollector::~KernelCollector() { collector = nullptr; }

void launch(const KernelSource& kernel, std::span<void* const> pointers) {
  if (kernel.blocks == 0) return;
  if (collector) {
    collector->kernels.push_back(kernel);
    return;
  }
  if (pointers.back() == nullptr) return;
  std::vector<void*> arguments;
  for (void* const& pointer : pointers) arguments.push_back(const_cast<void**>(&pointer));
  for (const std::int64_t& number : kernel.numbers) arguments.push_back(const_cast<std::int64_t*>(&number));
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const bool dependently = launches_dependently(current_arch());
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kernel.blocks);
  config.blockDim = dim3(kernel.threads);
  config.stream = c10::cuda::getCurrentCUDAStream();
  config.attrs = &early;
  config.numAttrs = dependently ? 1 : 0;
  if (dependently) count_dependent_launch();
  C10_CUDA_CHECK(
      cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(loaded(kernel)), arguments.data()));
}

void load_ahead(std::span<const KernelSource> kernels) {
  auto& known = LoadedKernels::of_process();
  const int arch = current_arch();
  std::map<std::string, KernelSource> by_text;
  for (const KernelSource& kernel : kernels) {
    if (!known.find(kernel, arch)) by_text.emplace(kernel.text, kernel);
  }
  std::vector<KernelSource> missing;
  for (const auto& [text, kernel] : by_text) missing.push_back(kernel);
  const auto cubins = compile_in_parallel(missing, arch, known.cache());
  for (std::size_t i = 0; i < missing.size(); ++i) known.load(missing[i], arch, cubins[i]);
}

}  // namespace nimble::kernels
