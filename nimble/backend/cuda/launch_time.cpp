#include "nimble/backend/cuda/launch_time.h"

#include <chrono>
#include <utility>
#include <vector>

#include "nimble/core/median.h"

namespace nimble::cuda {

Nanoseconds launch_time(CapturedGraph& graph, cudaStream_t stream) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kFewest = 5, kMost = 51;
  constexpr std::chrono::milliseconds kLongEnough(300);
  std::vector<Nanoseconds> times;
  const auto start = Clock::now();
  while (times.size() < kFewest || (times.size() < kMost && Clock::now() - start < kLongEnough)) {
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const auto begin = Clock::now();
    graph.launch_again(stream);
    times.push_back(std::chrono::nanoseconds(Clock::now() - begin).count());
  }
  return median(std::move(times));
}

}  // namespace nimble::cuda
