#include "nimble/backend/cuda/stream_executable.h"

#include <c10/cuda/CUDAGuard.h>

#include "nimble/backend/cuda/capture_turns.h"
#include "nimble/backend/cuda/device_program.h"
#include "nimble/backend/cuda/schedule_streams.h"
#include "nimble/backend/cuda/task_timeline.h"
#include "nimble/backend/cuda/task_times.h"

namespace nimble::cuda {
namespace {

class StreamExecutable final : public Executable {
 public:
  StreamExecutable(ExecutionPlan plan, const BindOptions& options)
      : program_(std::move(plan), options), streams_(program_.plan().schedule) {}

  ~StreamExecutable() override {
    try {
      program_.wait_until_idle();
    } catch (const std::exception&) {
      // The device is in error or gone, and so are the streams.
    }
    forget_workspaces(streams_.raw());
  }

  Tensors replay(std::span<const at::Tensor> inputs) override {
    const c10::cuda::CUDAGuard on_device(program_.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    // Memory that a task made elsewhere is used across streams, so it is let go only when all of them are
    // through.
    program_.wait_until_idle();
    program_.bound().release_given();
    const DeviceProgram::Use use(program_, stream);
    program_.bound().take_back_escaped();
    program_.copy_in(inputs, stream);
    program_.update_scalars(inputs);
    if (!program_.is_warm()) {
      const auto alone = one_capture_at_a_time();
      program_.warm_up();
      program_.copy_in(inputs, stream);
    }
    {
      const BlasWorkspaces::Lender lender(*program_.workspaces());
      BoundProgram::Lane lane;
      program_.draws().begin();
      const auto issue_task = [&](TaskId task, cudaStream_t on) {
        if (program_.program().task(task).draw) program_.draws().before(task);
        program_.issue(task, on, lane, lender);
      };
      try {
        streams_.issue(program_.plan().schedule, stream, issue_task);
      } catch (...) {
        static_cast<void>(cudaDeviceSynchronize());  // what was thrown says more
        throw;
      }
      program_.draws().end();
      unplanned_ = lane.unplanned();
    }
    program_.settle_results(stream);
    return program_.copy_out(inputs, stream);
  }

  void wait() override { program_.wait_until_idle(); }
  void let_current_stream_wait() override { program_.let_current_stream_wait(); }

  ExecutableReport report() const override {
    ExecutableReport report = program_.report();
    report.unplanned_allocations = unplanned_;
    return report;
  }

  std::vector<Nanoseconds> measure_tasks(std::span<const at::Tensor> inputs) override {
    return task_times(program_, inputs);
  }
  Nanoseconds measure_clock(std::span<const at::Tensor> inputs) override {
    return clock_time(program_, inputs);
  }
  std::vector<TaskSpan> measure_timeline(std::span<const at::Tensor> inputs) override {
    return task_timeline(program_, inputs);
  }

  const ExecutionPlan& plan() const override { return program_.plan(); }

 private:
  DeviceProgram program_;
  ScheduleStreams streams_;
  std::uint64_t unplanned_ = 0;
};

}  // namespace

std::unique_ptr<Executable> make_stream_executable(ExecutionPlan plan, const BindOptions& options) {
  const c10::cuda::CUDAGuard on_device(plan.program->device());
  return std::make_unique<StreamExecutable>(std::move(plan), options);
}

}  // namespace nimble::cuda
