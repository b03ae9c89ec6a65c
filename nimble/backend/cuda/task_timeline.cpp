#include "nimble/backend/cuda/task_timeline.h"

#include <c10/cuda/CUDAGuard.h>

#include <cmath>

#include "nimble/backend/cuda/schedule_streams.h"
#include "nimble/backend/cuda/timed_replays.h"
#include "nimble/backend/timeline.h"

namespace nimble::cuda {

std::vector<TaskSpan> task_timeline(DeviceProgram& program, std::span<const at::Tensor> inputs) {
  const Schedule& schedule = program.plan().schedule;
  const std::size_t tasks = schedule.launch_order.size();
  if (tasks == 0) return {};
  const c10::cuda::CUDAGuard on_device(program.device());
  Event start(Event::Timing::kOn);
  std::vector<Event> before = timing_events(tasks), after = timing_events(tasks);
  ScheduleStreams streams(schedule);
  const auto issue_all = [&](cudaStream_t origin, IssueTask issue_task) {
    start.record_in_graph(origin);
    streams.issue(schedule, origin, [&](TaskId task, cudaStream_t on) {
      before[task.index()].record_in_graph(on);
      issue_task(task, on);
      after[task.index()].record_in_graph(on);
    });
  };
  const auto nanoseconds = [&](const Event& event) -> Nanoseconds {
    return std::llround(static_cast<double>(event.milliseconds_since(start)) * 1e6);
  };
  const std::vector<StreamId> stream_of = schedule.stream_of();
  std::vector<std::vector<TaskSpan>> runs;
  replay_timed(program, inputs, streams.raw(), issue_all, kTimedReplays, [&] {
    std::vector<TaskSpan>& spans = runs.emplace_back(tasks);
    for (std::size_t i = 0; i < tasks; ++i) {
      spans[i] = {stream_of[i], nanoseconds(before[i]), nanoseconds(after[i])};
    }
  });
  return run_of_median_length(std::move(runs));
}

}  // namespace nimble::cuda
