#include "nimble/backend/cuda/task_timeline.h"

#include <c10/cuda/CUDAGuard.h>

#include <cmath>

#include "nimble/backend/cuda/captured_graph.h"
#include "nimble/backend/cuda/schedule_streams.h"
#include "nimble/backend/timeline.h"
#include "nimble/kernels/cuda/dependent_launch.h"
#include "nimble/torch/outside_state.h"

namespace nimble::cuda {
namespace {

std::vector<Event> timing_events(std::size_t count) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < count; ++i) events.emplace_back(Event::Timing::kOn);
  return events;
}

}  // namespace

std::vector<TaskSpan> task_timeline(DeviceProgram& program, std::span<const at::Tensor> inputs) {
  const Schedule& schedule = program.plan().schedule;
  const std::size_t tasks = schedule.launch_order.size();
  if (tasks == 0) return {};
  const c10::cuda::CUDAGuard on_device(program.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const auto alone = one_capture_at_a_time();
  const DeviceProgram::Use use(program, stream);
  program.copy_in(inputs, stream);
  program.update_scalars(inputs);
  if (!program.is_warm()) program.warm_up();

  Event start(Event::Timing::kOn);
  std::vector<Event> before = timing_events(tasks), after = timing_events(tasks);
  ScheduleStreams streams(schedule);
  // Events lie between the tasks, so no kernel could begin early.
  const kernels::WithoutDependentLaunches without;
  CapturedGraph graph(program, streams.raw(), [&](cudaStream_t origin, IssueTask issue_task) {
    start.record_in_graph(origin);
    streams.issue(schedule, origin, [&](TaskId task, cudaStream_t on) {
      before[task.index()].record_in_graph(on);
      issue_task(task, on);
      after[task.index()].record_in_graph(on);
    });
  });

  const auto nanoseconds = [&](const Event& event) -> Nanoseconds {
    return std::llround(static_cast<double>(event.milliseconds_since(start)) * 1e6);
  };
  const std::vector<StreamId> stream_of = schedule.stream_of();
  const OutsideState outside = OutsideState::save(program.program(), {});  // inputs are copied, and stay
  std::vector<std::vector<TaskSpan>> runs;
  for (std::size_t run = 0; run <= kTimedReplays; ++run) {
    program.copy_in(inputs, stream);  // a program may write to its inputs
    graph.launch(stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (run == 0) continue;
    std::vector<TaskSpan>& spans = runs.emplace_back(tasks);
    for (std::size_t i = 0; i < tasks; ++i) {
      spans[i] = {stream_of[i], nanoseconds(before[i]), nanoseconds(after[i])};
    }
  }
  outside.restore();
  return run_of_median_length(std::move(runs));
}

}  // namespace nimble::cuda
