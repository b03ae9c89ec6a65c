#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nimble/core/error.h"
#include "nimble/core/schedule.h"
#include "nimble/torch/dependencies.h"
#include "nimble/torch/program.h"

namespace nimble {

using Tensors = std::vector<at::Tensor>;
class Executable;

// Everything that was decided about a program before it is bound to a backend. Immutable; `schedule` was
// planned for `graph` and `memory`, and has been verified.
struct ExecutionPlan {
  std::shared_ptr<const Program> program;
  TaskGraph graph;
  MemoryDemand memory;
  Schedule schedule;
};

struct BindOptions {
  // Results lie in memory of the executable's own, and the next replay overwrites them. Off: each replay
  // gives its caller results that nobody else ever touches.
  bool alias_outputs = false;
  // CPU: threads that one task may use. 0: as many as PyTorch is set to.
  int threads_per_stream = 0;
  // CUDA: one graph, launched at once. Off: the same schedule stream by stream, for debugging and for drivers
  // that refuse to capture.
  bool graph = true;
  // CUDA: real inputs, with which the program is run once before it is captured (its effects are undone).
  // Without them a program that has inputs is captured at its first replay.
  Tensors example_inputs = {};
  // CUDA: another schedule of the same program, whose warm-up then counts for this one too.
  const Executable* same_program = nullptr;
  // CUDA: an executable in whose memory this one may lie, if it fits. The two must never run at the same
  // time.
  const Executable* memory_of = nullptr;
  // Called before each task, on the thread that issues it and, on CUDA, with the task's stream as the current
  // one; tests put delays here.
  std::function<void(TaskId)> before_task = {};
};

// Where and when a task ran in one replay, counted from the replay's beginning.
struct TaskSpan {
  StreamId stream;
  Nanoseconds start = 0, end = 0;
};

struct ExecutableReport {
  std::uint64_t arena_bytes = 0;            // planned memory
  std::uint64_t unplanned_allocations = 0;  // of the last replay (CPU) or of the capture (CUDA)
  std::size_t threads_per_stream = 0;       // CPU only
  std::uint64_t static_bytes = 0;           // CUDA only: inputs and results in memory of the executable's own
  std::uint64_t workspace_bytes = 0;        // CUDA only: of cuBLAS and cuBLASLt
  std::uint64_t spare_bytes = 0;            // CUDA only: of memory that was made for a larger one
};

// A schedule bound to a backend, ready to replay. Owns its memory, its threads or streams, and keeps the
// program's outside tensors alive.
class Executable {
 public:
  virtual ~Executable() = default;

  // Runs the whole schedule on `inputs`, which must look exactly as the recorded ones did (the caller has
  // checked). Bumps the version of every outside tensor that it writes. What a task throws is thrown here,
  // once all streams have stopped; the executable stays usable. One call at a time; callers serialise.
  virtual Tensors replay(std::span<const at::Tensor> inputs) = 0;

  // Returns when the work of the last replay is done (a GPU goes on after `replay` has returned).
  virtual void wait() {}

  // The same for what comes next on the current stream, without making the host wait.
  virtual void let_current_stream_wait() {}

  virtual ExecutableReport report() const = 0;

  // Runs the tasks one after the other and returns how long each took, by task.
  virtual std::vector<Nanoseconds> measure_tasks(std::span<const at::Tensor> inputs) = 0;

  // How much of each of these times the clock itself took. Nothing worth measuring on a CPU.
  virtual Nanoseconds measure_clock(std::span<const at::Tensor>) { return 0; }

  // How long the host is busy with handing all tasks over at once, without what a replay does around it;
  // nothing where they are not handed over at once. What that changes outside is not put back.
  virtual Nanoseconds measure_launch(std::span<const at::Tensor>) { return 0; }

  // Replays the schedule a few times with a clock around each task, and returns the run of median length, by
  // task. What that changes outside, inputs included, is put back.
  virtual std::vector<TaskSpan> measure_timeline(std::span<const at::Tensor> inputs) = 0;

  virtual const ExecutionPlan& plan() const = 0;
};

// The seam between engine and devices: everything that is asked of a backend.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::uint64_t alignment() const = 0;

  // Makes PyTorch's allocations on this device visible to AllocationHook. Cheap, may be called again and
  // again.
  virtual void watch_allocations() = 0;

  // Refuses, with TaskRefused or RecordError, a program that this backend cannot replay.
  virtual void check(const Program& program) const = 0;

  virtual std::unique_ptr<Executable> bind(ExecutionPlan plan, const BindOptions& options) = 0;

  // What times measured on `device` depend on: the hardware, the libraries and their settings. Nothing where
  // a time is not worth keeping for another process.
  virtual std::string measured_on(c10::Device device) const {
    static_cast<void>(device);
    return {};
  }

  // The numbers of streams worth measuring for a program of this degree of concurrency, the safe choice (one)
  // first. 0 stands for maximum concurrency.
  virtual std::vector<StreamLimit> stream_choices(std::size_t degree_of_concurrency) const = 0;
};

Backend& cpu_backend();
Backend& cuda_backend();  // throws Error, saying why, where there is none
bool cuda_available();
Backend& backend_for(c10::Device device);

}  // namespace nimble
