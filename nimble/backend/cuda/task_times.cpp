#include "nimble/backend/cuda/task_times.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nimble/backend/cuda/timed_replays.h"
#include "nimble/core/median.h"

namespace nimble::cuda {
namespace {

enum class Events { kBetweenTasks, kAtBothEnds };

// Captures all tasks one after the other with these events, and returns how long it was from each event to
// the next.
std::vector<Nanoseconds> times_between(Events events, DeviceProgram& program,
                                       std::span<const at::Tensor> inputs) {
  constexpr std::size_t kRuns = 5;
  const c10::cuda::CUDAGuard on_device(program.device());
  const auto& order = program.plan().schedule.launch_order;
  const std::size_t count = events == Events::kBetweenTasks ? order.size() : 1;
  std::vector<Event> recorded = timing_events(count + 1);
  const auto issue_all = [&](cudaStream_t origin, IssueTask issue_task) {
    recorded.front().record_in_graph(origin);
    for (std::size_t i = 0; i < order.size(); ++i) {
      issue_task(order[i], origin);
      if (i + 1 < count) recorded[i + 1].record_in_graph(origin);
    }
    recorded.back().record_in_graph(origin);
  };
  std::vector<std::vector<float>> milliseconds(count);
  replay_timed(program, inputs, {}, issue_all, kRuns, [&] {
    for (std::size_t i = 0; i < count; ++i) {
      milliseconds[i].push_back(recorded[i + 1].milliseconds_since(recorded[i]));
    }
  });

  std::vector<Nanoseconds> times;
  for (std::vector<float>& runs : milliseconds) times.push_back(std::llround(median(std::move(runs)) * 1e6));
  return times;
}

}  // namespace

std::vector<Nanoseconds> task_times(DeviceProgram& program, std::span<const at::Tensor> inputs) {
  const auto in_order = times_between(Events::kBetweenTasks, program, inputs);
  const auto& order = program.plan().schedule.launch_order;
  std::vector<Nanoseconds> times(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) times[order[i].index()] = in_order[i];
  return times;
}

Nanoseconds clock_time(DeviceProgram& program, std::span<const at::Tensor> inputs) {
  const auto with = times_between(Events::kBetweenTasks, program, inputs);
  const auto without = times_between(Events::kAtBothEnds, program, inputs);
  // The last event is there both times.
  const auto events = static_cast<Nanoseconds>(with.size()) - 1;
  if (events < 1) return 0;
  const Nanoseconds added = std::accumulate(with.begin(), with.end(), Nanoseconds{0}) - without.front();
  return std::max<Nanoseconds>(0, added / events);
}

}  // namespace nimble::cuda
