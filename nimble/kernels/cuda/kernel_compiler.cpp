#include "nimble/kernels/cuda/kernel_compiler.h"

#include <algorithm>
#include <exception>
#include <utility>

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

KernelsOnTheWay::KernelsOnTheWay(std::vector<KernelSource> kernels, int arch, const DiskCache& cache)
    : kernels_(std::move(kernels)), arch_(arch), cache_(cache), promises_(kernels_.size()) {
  for (auto& promise : promises_) cubins_.push_back(promise.get_future().share());
  // One core is left to whoever waits, and measures what is there meanwhile.
  const auto cores = std::max(2u, std::thread::hardware_concurrency());
  const auto threads = std::min<std::size_t>(kernels_.size(), cores - 1);
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { compile_what_nobody_has_begun(); });
  }
}

void KernelsOnTheWay::compile_what_nobody_has_begun() {
  for (std::size_t i = next_++; i < kernels_.size(); i = next_++) {
    try {
      promises_[i].set_value(cubin_of(kernels_[i], arch_, cache_));
    } catch (...) {
      promises_[i].set_exception(std::current_exception());
    }
  }
}

}  // namespace nimble::kernels
