#pragma once

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "nimble/kernels/disk_cache.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// The compiled form of a kernel for a GPU of the architecture `arch` (90 is sm_90): from the cache, or
// compiled now and kept there.
std::string cubin_of(const KernelSource& kernel, int arch, const DiskCache& cache);

// The same for many, in their order, on threads of their own: whoever needs one of them waits for that one
// alone. Lives until the last is done.
class KernelsOnTheWay {
 public:
  KernelsOnTheWay(std::vector<KernelSource> kernels, int arch, const DiskCache& cache);

  const std::vector<KernelSource>& kernels() const { return kernels_; }
  const std::shared_future<std::string>& cubin(std::size_t kernel) const { return cubins_[kernel]; }

 private:
  void compile_what_nobody_has_begun();

  const std::vector<KernelSource> kernels_;
  const int arch_;
  const DiskCache& cache_;
  std::vector<std::promise<std::string>> promises_;
  std::vector<std::shared_future<std::string>> cubins_;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace nimble::kernels
