#include "nimble/kernels/cuda/kernel_compiler.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "nimble/kernels/cuda/nvrtc.h"

namespace nimble::kernels {
namespace {

// Everything that the result depends on.
std::string key_of(const KernelSource& kernel, int arch) {
  return "nvrtc " + compiler_version() + " sm_" + std::to_string(arch) +
         (kernel.contract ? " contract\n" : " exact\n") + kernel.text;
}

}  // namespace

std::string cubin_of(const KernelSource& kernel, int arch, const DiskCache& cache) {
  const std::string key = key_of(kernel, arch);
  if (auto kept = cache.load(key)) return *std::move(kept);
  std::string cubin = compile_to_cubin(kernel.text, arch, kernel.contract);
  cache.store(key, cubin);
  return cubin;
}

std::vector<std::string> compile_in_parallel(std::span<const KernelSource> kernels, int arch,
                                             const DiskCache& cache) {
  std::vector<std::string> cubins(kernels.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < kernels.size(); i = next++) {
      try {
        cubins[i] = cubin_of(kernels[i], arch, cache);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    }
  };
  const auto threads = std::min<std::size_t>(kernels.size(), std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return cubins;
}

}  // namespace nimble::kernels
