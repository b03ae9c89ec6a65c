#include "nimble/backend/cuda/graph_executable.h"

#include <c10/cuda/CUDAGuard.h>

#include <optional>

#include "nimble/backend/cuda/capture_turns.h"
#include "nimble/backend/cuda/captured_graph.h"
#include "nimble/backend/cuda/device_program.h"
#include "nimble/backend/cuda/launch_time.h"
#include "nimble/backend/cuda/schedule_streams.h"
#include "nimble/backend/cuda/task_timeline.h"
#include "nimble/backend/cuda/task_times.h"
#include "nimble/kernels/cuda/dependent_launch.h"

namespace nimble::cuda {
namespace {

class GraphExecutable final : public Executable {
 public:
  GraphExecutable(ExecutionPlan plan, const BindOptions& options)
      : program_(std::move(plan), options, arena_of(options.memory_of)) {
    if (const auto* other = dynamic_cast<const GraphExecutable*>(options.same_program)) {
      program_.take_over_warm_up(other->program_);
    }
    const Tensors& examples = options.example_inputs;
    if (examples.size() != program_.program().inputs.size()) return;
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    const DeviceProgram::Use use(program_, stream);
    program_.copy_in(examples, stream);
    program_.update_scalars(examples);
    capture(examples, stream);
  }

  ~GraphExecutable() override {
    try {
      program_.wait_until_idle();
    } catch (const std::exception&) {
      // The device is in error or gone, and so is the graph.
    }
  }

  Tensors replay(std::span<const at::Tensor> inputs) override {
    // Nearly always it is the current device already, and then there is nothing to put back.
    c10::cuda::OptionalCUDAGuard on_device;
    if (c10::cuda::current_device() != program_.device().index()) on_device.set_device(program_.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(program_.device().index());
    DeviceProgram::Use use(program_, stream);
    program_.bound().take_back_escaped();
    const bool scalars_changed = program_.update_scalars(inputs);
    if (!graph_ || scalars_changed) {
      program_.copy_in(inputs, stream);
      capture(inputs, stream);
    }
    program_.copy_rest_in(inputs);
    program_.say_copies_in(inputs, copies_in_);
    const DeviceProgram::Results results = program_.make_results();
    program_.say_copies_out(inputs, results, copies_out_);
    graph_->launch(stream, copies_in_, copies_out_);
    if (!program_.copies_while_handing_out()) use.ends_with_graph();
    return program_.hand_out(inputs, results);
  }

  void wait() override { program_.wait_until_idle(); }
  void let_current_stream_wait() override { program_.let_current_stream_wait(); }

  ExecutableReport report() const override {
    ExecutableReport report = program_.report();
    if (graph_) report.unplanned_allocations = graph_->unplanned_allocations();
    return report;
  }

  std::vector<Nanoseconds> measure_tasks(std::span<const at::Tensor> inputs) override {
    return task_times(program_, inputs);
  }
  Nanoseconds measure_clock(std::span<const at::Tensor> inputs) override {
    return clock_time(program_, inputs);
  }
  Nanoseconds measure_launch(std::span<const at::Tensor> inputs) override {
    const c10::cuda::CUDAGuard on_device(program_.device());
    const Tensors written_again_and_again = replay(inputs);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(program_.device().index());
    const DeviceProgram::Use use(program_, stream);
    return launch_time(*graph_, stream);
  }
  std::vector<TaskSpan> measure_timeline(std::span<const at::Tensor> inputs) override {
    return task_timeline(program_, inputs);
  }

  const ExecutionPlan& plan() const override { return program_.plan(); }

 private:
  static std::shared_ptr<Arena> arena_of(const Executable* other) {
    const auto* graph = dynamic_cast<const GraphExecutable*>(other);
    return graph ? graph->program_.arena() : nullptr;
  }

  void capture(std::span<const at::Tensor> inputs, cudaStream_t stream) {
    const auto alone = one_capture_at_a_time();
    if (graph_) program_.wait_until_idle();
    const bool with_another_number = graph_.has_value();  // which may make libraries choose other kernels
    graph_.reset();
    if (with_another_number || !program_.is_warm()) program_.warm_up();
    ScheduleStreams streams(program_.plan().schedule);
    program_.say_copies_in(inputs, copies_in_);
    const DeviceProgram::Results results = program_.make_results();
    program_.say_copies_out(inputs, results, copies_out_);
    const auto issue_all = [&](cudaStream_t origin, IssueTask issue_task) {
      streams.issue(program_.plan().schedule, origin, issue_task);
    };
    const auto capture_once = [&] {
      try {
        graph_.emplace(program_, streams.raw(), issue_all, copies_in_, copies_out_);
      } catch (...) {
        program_.settle_libraries(inputs, stream);
        throw;
      }
    };
    const auto dependent_launches_before = kernels::dependent_launches();
    try {
      capture_once();
    } catch (const std::exception& error) {
      if (kernels::dependent_launches() == dependent_launches_before) throw;
      const kernels::WithoutDependentLaunches without;
      capture_once();
      kernels::give_up_dependent_launches();
      TORCH_WARN(
          "[nimble::cuda] kernels are no longer launched ahead of those that they depend on, because a "
          "CUDA graph of such launches cannot be made here: ",
          error.what());
    }
  }

  DeviceProgram program_;
  std::optional<CapturedGraph> graph_;
  std::vector<Copy> copies_in_, copies_out_;  // of the launch being made
};

}  // namespace

std::unique_ptr<Executable> make_graph_executable(ExecutionPlan plan, const BindOptions& options) {
  const c10::cuda::CUDAGuard on_device(plan.program->device());
  return std::make_unique<GraphExecutable>(std::move(plan), options);
}

}  // namespace nimble::cuda
