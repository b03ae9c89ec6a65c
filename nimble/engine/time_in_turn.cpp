#include "nimble/engine/time_in_turn.h"

#include <chrono>

namespace nimble {

std::vector<std::vector<double>> time_in_turn(std::span<Executable* const> executables,
                                              std::span<const at::Tensor> inputs, double seconds,
                                              std::size_t most) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kFewest = 3;
  const auto milliseconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  std::vector<std::vector<double>> times(executables.size());
  // The threads that one has used wait for more, busily, on cores that the next one needs.
  const bool disturb_each_other = executables.size() > 1 && executables[0]->plan().program->device().is_cpu();
  const auto start = Clock::now();
  for (std::size_t round = 0; round < most; ++round) {
    if (round >= kFewest && milliseconds_since(start) > seconds * 1e3) break;
    for (std::size_t i = 0; i < executables.size(); ++i) {
      if (disturb_each_other) executables[i]->replay(inputs);
      const auto begin = Clock::now();
      executables[i]->replay(inputs);
      executables[i]->wait();
      times[i].push_back(milliseconds_since(begin));
    }
  }
  return times;
}

}  // namespace nimble
