// What each call of a rewritten function pays to notice that a weight has changed: one look at the version
// counter of every tensor that something was derived from.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "nimble/torch/derivation.h"

namespace {

// As a module holds them: each with memory of its own, of sizes as they come in networks.
std::vector<at::Tensor> parameters(std::int64_t count) {
  constexpr std::int64_t kSizes[] = {64, 64 * 9, 256, 64 * 64, 1024};
  std::vector<at::Tensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) tensors.push_back(at::zeros({kSizes[i % std::size(kSizes)]}));
  return tensors;
}

// Between two looks somebody goes over so much memory: nothing, more than the caches of a core hold, more
// than all caches hold.
void look(benchmark::State& state) {
  const auto tensors = parameters(state.range(0));
  const nimble::Versions versions(tensors);
  std::vector<int> others(static_cast<std::size_t>(state.range(1)) * (std::size_t{1} << 20) / sizeof(int));
  std::vector<double> microseconds;
  for (auto iteration : state) {
    for (int& number : others) ++number;
    benchmark::DoNotOptimize(others.data());
    const auto start = std::chrono::steady_clock::now();
    bool unchanged = versions.unchanged();
    benchmark::DoNotOptimize(unchanged);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (!unchanged) state.SkipWithError("nothing was written, and yet a version has changed");
    state.SetIterationTime(time.count());
    microseconds.push_back(time.count() * 1e6);
  }
  // It tells more than the mean that the library prints: whoever is interrupted once waits long.
  std::ranges::nth_element(microseconds, microseconds.begin() + std::ssize(microseconds) / 2);
  state.counters["median_us"] = microseconds[microseconds.size() / 2];
}

}  // namespace

BENCHMARK(look)
    ->ArgNames({"tensors", "MiB_between"})
    ->ArgsProduct({{100, 1000, 10000}, {0, 4, 128}})
    ->Iterations(100)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_MAIN();
