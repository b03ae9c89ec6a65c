#include "nimble/engine/measure.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <chrono>

#include "nimble/core/median.h"
#include "nimble/torch/outside_state.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<double> time_replays(Executable& executable, std::span<const at::Tensor> inputs) {
  constexpr std::size_t kFewest = 5, kMost = 100;
  constexpr std::chrono::milliseconds kLongEnough(300);
  std::vector<double> times;
  executable.replay(inputs);
  executable.wait();
  const auto start = Clock::now();
  while (times.size() < kFewest || (times.size() < kMost && Clock::now() - start < kLongEnough)) {
    const auto begin = Clock::now();
    executable.replay(inputs);
    executable.wait();
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }
  return times;
}

// A task may be interrupted in one run; in most of a few it is not.
std::vector<Nanoseconds> task_costs(Executable& executable, std::span<const at::Tensor> inputs,
                                    Nanoseconds clock) {
  constexpr std::size_t kRuns = 3;
  std::vector<std::vector<Nanoseconds>> runs;
  for (std::size_t i = 0; i < kRuns; ++i) runs.push_back(executable.measure_tasks(inputs));
  std::vector<Nanoseconds> costs;
  for (std::size_t task = 0; task < runs.front().size(); ++task) {
    std::vector<Nanoseconds> of_task;
    for (const auto& run : runs) of_task.push_back(run[task]);
    costs.push_back(std::max<Nanoseconds>(1, median(std::move(of_task)) - clock));  // nothing takes no time
  }
  return costs;
}

}  // namespace

Measured measure(Executable& executable, std::span<const at::Tensor> inputs) {
  const OutsideState before = OutsideState::save(*executable.plan().program, inputs);
  const auto put_back = c10::make_scope_exit([&] { before.try_restore(); });
  Measured measured;
  std::vector<double> times = time_replays(executable, inputs);
  measured.replays = times.size();
  measured.replay_nanoseconds = median(std::move(times));
  measured.launch = executable.measure_launch(inputs);
  measured.clock = executable.measure_clock(inputs);
  measured.costs = task_costs(executable, inputs, measured.clock);
  measured.spans = executable.measure_timeline(inputs);
  return measured;
}

}  // namespace nimble
