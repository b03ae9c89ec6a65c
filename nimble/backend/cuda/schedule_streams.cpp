#include "nimble/backend/cuda/schedule_streams.h"

namespace nimble::cuda {

ScheduleStreams::ScheduleStreams(const Schedule& schedule) : events_(schedule.event_count) {
  if (schedule.streams.size() <= 1) return;
  for (std::size_t s = 0; s < schedule.streams.size(); ++s) {
    streams_.emplace_back();
    ends_.emplace_back();
  }
}

void ScheduleStreams::issue(const Schedule& schedule, cudaStream_t origin, IssueTask issue_task) {
  if (streams_.empty()) {
    for (const TaskId task : schedule.launch_order) issue_task(task, origin);
    return;
  }
  start_.record(origin);
  for (const Stream& stream : streams_) start_.make_wait(stream.get());

  const std::vector<StreamId> stream_of = schedule.stream_of();
  std::vector<std::size_t> next_step(streams_.size());
  for (const TaskId task : schedule.launch_order) {
    const std::size_t s = stream_of[task.index()].index();
    const StreamProgram& steps = schedule.streams[s];
    const cudaStream_t stream = streams_[s].get();
    // Up to and including the task, then the events that tell others of it.
    bool issued = false;
    for (std::size_t& i = next_step[s]; i < steps.size(); ++i) {
      if (const auto* wait = std::get_if<WaitEvent>(&steps[i])) {
        if (issued) break;
        events_[wait->event.index()].make_wait(stream);
      } else if (const auto* record = std::get_if<RecordEvent>(&steps[i])) {
        events_[record->event.index()].record(stream);
      } else {
        if (issued) break;
        issue_task(std::get<Run>(steps[i]).task, stream);
        issued = true;
      }
    }
  }
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    ends_[s].record(streams_[s].get());
    ends_[s].make_wait(origin);
  }
}

std::vector<cudaStream_t> ScheduleStreams::raw() const {
  std::vector<cudaStream_t> raw;
  for (const Stream& stream : streams_) raw.push_back(stream.get());
  return raw;
}

}  // namespace nimble::cuda
