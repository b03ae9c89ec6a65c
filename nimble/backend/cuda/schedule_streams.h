#pragma once

#include <c10/util/FunctionRef.h>

#include <vector>

#include "nimble/backend/cuda/handles.h"
#include "nimble/core/schedule.h"

namespace nimble::cuda {

// The CUDA streams and events of one schedule, and the one way in which its tasks are put on them: under a
// capture this makes the graph, otherwise it runs the schedule.
class ScheduleStreams {
 public:
  explicit ScheduleStreams(const Schedule& schedule);

  using IssueTask = c10::function_ref<void(TaskId, cudaStream_t)>;

  // Issues all tasks in launch order: every stream starts after what `origin` did so far, and `origin` goes
  // on after all of them. A schedule of one stream runs on `origin` itself.
  void issue(const Schedule& schedule, cudaStream_t origin, IssueTask issue_task);

  // Those that issue() uses besides `origin`.
  std::vector<cudaStream_t> raw() const;

 private:
  std::vector<Stream> streams_;
  std::vector<Event> events_;  // by EventId
  std::vector<Event> ends_;    // by stream
  Event start_;
};

}  // namespace nimble::cuda
