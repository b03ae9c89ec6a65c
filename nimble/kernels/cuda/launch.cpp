#include "nimble/kernels/cuda/launch.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
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
    static auto* kernels = new LoadedKernels;  // used by threads until the very end of the process
    return *kernels;
  }

  const DiskCache& cache() const { return cache_; }

  std::optional<cudaKernel_t> find(const KernelSource& kernel, int arch) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(key(kernel, arch));
    return found == kernels_.end() ? std::nullopt : std::optional(found->second);
  }

  // Of those that are on their way.
  std::optional<std::shared_future<std::string>> coming(const KernelSource& kernel, int arch) {
    const std::lock_guard lock(mutex_);
    const auto found = coming_.find(key(kernel, arch));
    return found == coming_.end() ? std::nullopt : std::optional(found->second);
  }
  void comes(const KernelSource& kernel, int arch, std::shared_future<std::string> cubin) {
    const std::lock_guard lock(mutex_);
    coming_.emplace(key(kernel, arch), std::move(cubin));
  }
  void has_come(const KernelSource& kernel, int arch) {
    const std::lock_guard lock(mutex_);
    coming_.erase(key(kernel, arch));
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
  using Key = std::pair<int, std::string>;
  static Key key(const KernelSource& kernel, int arch) {
    return {arch, (kernel.contract ? "contract\n" : "exact\n") + kernel.text};
  }

  std::mutex mutex_;
  std::map<Key, cudaKernel_t> kernels_;
  std::map<Key, std::shared_future<std::string>> coming_;
  DiskCache cache_ = DiskCache::of_user();
};

cudaKernel_t loaded(const KernelSource& kernel) {
  auto& kernels = LoadedKernels::of_process();
  const int arch = current_arch();
  if (const auto known = kernels.find(kernel, arch)) return *known;
  if (const auto coming = kernels.coming(kernel, arch)) return kernels.load(kernel, arch, coming->get());
  return kernels.load(kernel, arch, cubin_of(kernel, arch, kernels.cache()));
}

// Kernels that nobody else is compiling, and those of others. What cannot be compiled says so where it is
// used.
class LoadingAhead {
 public:
  LoadingAhead(std::vector<KernelSource> missing, std::vector<KernelSource> of_others, int arch)
      : of_others_(std::move(of_others)),
        arch_(arch),
        compiling_(std::move(missing), arch, LoadedKernels::of_process().cache()) {
    const auto& kernels = compiling_.kernels();
    for (std::size_t i = 0; i < kernels.size(); ++i)
      LoadedKernels::of_process().comes(kernels[i], arch_, compiling_.cubin(i));
  }

  ~LoadingAhead() {
    for (const KernelSource& kernel : compiling_.kernels()) {
      load(kernel);
      LoadedKernels::of_process().has_come(kernel, arch_);
    }
    for (const KernelSource& kernel : of_others_) load(kernel);
  }

 private:
  void load(const KernelSource& kernel) const {
    auto& kernels = LoadedKernels::of_process();
    const auto coming = kernels.coming(kernel, arch_);
    if (!coming) return;
    try {
      kernels.load(kernel, arch_, coming->get());
    } catch (const std::exception&) {
    }
  }

  const std::vector<KernelSource> of_others_;
  const int arch_;
  const KernelsOnTheWay compiling_;
};

}  // namespace

KernelCollector::KernelCollector() { collector = this; }
KernelCollector::~KernelCollector() { collector = nullptr; }

namespace {

bool was_collected(const KernelSource& kernel) {
  if (collector) collector->kernels.push_back(kernel);
  return collector != nullptr;
}

// `arguments` point to the arguments' values.
void submit(const KernelSource& kernel, std::vector<void*> arguments) {
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

}  // namespace

void launch(const KernelSource& kernel, std::span<void* const> pointers) {
  if (kernel.blocks == 0 || was_collected(kernel) || pointers.back() == nullptr) return;
  std::vector<void*> arguments;
  for (void* const& pointer : pointers) arguments.push_back(const_cast<void**>(&pointer));
  for (const std::int64_t& number : kernel.numbers) arguments.push_back(const_cast<std::int64_t*>(&number));
  submit(kernel, std::move(arguments));
}

void launch_with_table(const KernelSource& kernel, std::span<const std::uint64_t> table) {
  if (was_collected(kernel) || table.empty()) return;
  submit(kernel, {const_cast<std::uint64_t*>(table.data())});
}

Compiling load_ahead(std::span<const KernelSource> kernels) {
  auto& known = LoadedKernels::of_process();
  const int arch = current_arch();
  std::set<std::pair<bool, std::string_view>> seen;
  std::vector<KernelSource> missing, of_others;
  for (const KernelSource& kernel : kernels) {
    if (!seen.insert({kernel.contract, kernel.text}).second || known.find(kernel, arch)) continue;
    (known.coming(kernel, arch) ? of_others : missing).push_back(kernel);
  }
  if (missing.empty() && of_others.empty()) return nullptr;
  return std::make_shared<const LoadingAhead>(std::move(missing), std::move(of_others), arch);
}

}  // namespace nimble::kernels
