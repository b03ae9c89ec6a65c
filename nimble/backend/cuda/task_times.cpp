#include "nimble/backend/cuda/task_times.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cmath>

#include "nimble/backend/cuda/captured_graph.h"
#include "nimble/kernels/cuda/dependent_launch.h"
#include "nimble/torch/outside_state.h"

namespace nimble::cuda {

std::vector<Nanoseconds> task_times(DeviceProgram& program, std::span<const at::Tensor> inputs) {
  constexpr std::size_t kRuns = 5;
  const c10::cuda::CUDAGuard on_device(program.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const auto alone = one_capture_at_a_time();
  const DeviceProgram::Use use(program, stream);
  program.copy_in(inputs, stream);
  program.update_scalars(inputs);
  if (!program.is_warm()) program.warm_up();

  const auto& order = program.plan().schedule.launch_order;
  std::vector<Event> between;
  for (std::size_t i = 0; i <= order.size(); ++i) between.emplace_back(Event::Timing::kOn);
  // Events lie between the tasks, so no kernel could begin early.
  const kernels::WithoutDependentLaunches without;
  CapturedGraph graph(program, {}, [&](cudaStream_t origin, IssueTask issue_task) {
    between[0].record_in_graph(origin);
    for (std::size_t i = 0; i < order.size(); ++i) {
      issue_task(order[i], origin);
      between[i + 1].record_in_graph(origin);
    }
  });

  const OutsideState before = OutsideState::save(program.program(), {});
  std::vector<std::vector<float>> milliseconds(order.size());
  for (std::size_t run = 0; run <= kRuns; ++run) {
    program.copy_in(inputs, stream);  // a program may write to its inputs
    graph.launch(stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (run == 0) continue;
    for (std::size_t i = 0; i < order.size(); ++i) {
      milliseconds[i].push_back(between[i + 1].milliseconds_since(between[i]));
    }
  }
  before.restore();

  std::vector<Nanoseconds> times(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::vector<float>& runs = milliseconds[i];
    std::nth_element(runs.begin(), runs.begin() + kRuns / 2, runs.end());
    times[order[i].index()] = std::llround(runs[kRuns / 2] * 1e6);
  }
  return times;
}

}  // namespace nimble::cuda
