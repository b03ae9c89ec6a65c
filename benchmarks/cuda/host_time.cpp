// How long one call of a compiled C++ function keeps the host busy, beside the bare launch of a CUDA graph of
// the same kernels. Prints JSON; `nimble bench` puts it into its report.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "nimble/engine/compile.h"

namespace {

using nimble::Tensors;

constexpr int kKernels = 50, kCalls = 2000, kUncounted = 200;

// Small kernels, one after the other: what they compute takes no time worth speaking of.
Tensors small_kernels(const Tensors& inputs) {
  at::Tensor x = inputs[0];
  for (int i = 0; i < kKernels / 2; ++i) x = at::relu(x + 0.5);
  return {x};
}

// The GPU is idle at each call, so none of them waits for a queue that is full.
double median_microseconds(const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < kUncounted + kCalls; ++i) {
    cudaDeviceSynchronize();
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    if (i >= kUncounted) times.push_back(time.count());
  }
  std::nth_element(times.begin(), times.begin() + kCalls / 2, times.end());
  return times[kCalls / 2];
}

}  // namespace

int main() {
  if (!nimble::cuda_available()) {
    std::cerr << "no CUDA device: this benchmark needs one\n";
    return 1;
  }
  const at::NoGradGuard no_grad;
  const Tensors inputs = {at::randn({1024}, at::TensorOptions(at::kCUDA))};

  at::cuda::CUDAGraph graph;
  Tensors results;
  {
    const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool());
    small_kernels(inputs);
    graph.capture_begin();
    results = small_kernels(inputs);
    graph.capture_end();
  }
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const double launch = median_microseconds([&] { cudaGraphLaunch(graph.raw_cuda_graph_exec(), stream); });

  const auto own_results = nimble::compile(small_kernels, {.strict = true, .streams = 1});
  const auto shared_results =
      nimble::compile(small_kernels, {.strict = true, .alias_outputs = true, .streams = 1});
  own_results.prepare(inputs);
  shared_results.prepare(inputs);
  const nlohmann::json report = {
      {"kernels", kKernels},
      {"graph_launch_microseconds", launch},
      {"call_microseconds", median_microseconds([&] { own_results(inputs); })},
      {"call_with_shared_results_microseconds", median_microseconds([&] { shared_results(inputs); })},
  };
  std::cout << report.dump() << '\n';
  if (own_results.stats().replays < kCalls || shared_results.stats().replays < kCalls) {
    std::cerr << "these were no replays: " << own_results.explain() << shared_results.explain();
    return 1;
  }
  return 0;
}
