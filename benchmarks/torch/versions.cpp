// What each call of a rewritten function pays to notice that a weight has changed: one look at the version
// counter of every tensor that something was derived from.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

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

void look(const nimble::Versions& versions, benchmark::State& state) {
  const auto start = std::chrono::steady_clock::now();
  bool unchanged = versions.unchanged();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  benchmark::DoNotOptimize(unchanged);
  if (!unchanged) state.SkipWithError("nothing was written, and yet a version has changed");
  state.SetIterationTime(time.count());
}

// One call after the other, with nothing in between.
void hot(benchmark::State& state) {
  const auto tensors = parameters(state.range(0));
  const nimble::Versions versions(tensors);
  for (auto iteration : state) look(versions, state);
}

// Between two calls somebody goes over more memory than any cache holds.
void cold(benchmark::State& state) {
  constexpr std::size_t kNumbers = std::size_t{1} << 25;  // 128 MiB
  const auto tensors = parameters(state.range(0));
  const nimble::Versions versions(tensors);
  std::vector<int> others(kNumbers);
  for (auto iteration : state) {
    for (int& number : others) ++number;
    benchmark::DoNotOptimize(others.data());
    look(versions, state);
  }
}

}  // namespace

BENCHMARK(hot)->Arg(100)->Arg(1000)->Arg(10000)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(cold)->Arg(100)->Arg(1000)->Arg(10000)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK_MAIN();
