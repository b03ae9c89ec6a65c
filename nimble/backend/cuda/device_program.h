#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "nimble/backend/bound_program.h"
#include "nimble/backend/cuda/blas_workspaces.h"
#include "nimble/backend/cuda/generators.h"
#include "nimble/backend/cuda/graph_copies.h"
#include "nimble/backend/cuda/handles.h"
#include "nimble/backend/cuda/host_tensors.h"
#include "nimble/backend/cuda/planned_allocator.h"
#include "nimble/backend/executable.h"
#include "nimble/backend/output_plan.h"

namespace nimble::cuda {

// A program in device memory, before it is decided how its tasks are launched: planned memory, places for
// inputs and results that never move, and the ways in and out of them.
class DeviceProgram {
 public:
  // Its device must be the current one. Lies in `arena`, if that is large enough, or in one of its own.
  DeviceProgram(ExecutionPlan plan, BindOptions options, std::shared_ptr<Arena> arena = nullptr);
  ~DeviceProgram();  // waits until idle
  DeviceProgram(const DeviceProgram&) = delete;
  DeviceProgram& operator=(const DeviceProgram&) = delete;

  const ExecutionPlan& plan() const { return plan_; }
  const Program& program() const { return *plan_.program; }
  const BindOptions& options() const { return options_; }
  c10::Device device() const { return device_; }
  BoundProgram& bound() { return bound_; }
  LaunchedDraws& draws() { return draws_; }
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  const std::shared_ptr<const BlasWorkspaces>& workspaces() const { return workspaces_; }

  // Runs all tasks once on the current stream and undoes what that changed outside. Libraries choose their
  // kernels here, for this thread, and show which tasks need a workspace. Inputs must be in place; those that
  // the program writes must be put there again afterwards.
  void warm_up();
  bool is_warm() const { return warm_on_ == std::this_thread::get_id(); }
  // The same tasks need no second one for another schedule.
  void take_over_warm_up(const DeviceProgram& other);

  // After a failed capture. A library that failed in it (cuSOLVER, say) is bound to a stream that is gone,
  // and its own copy of the CUDA runtime, whose last error nobody else can clear, would tell the next caller
  // on this thread of it. So the program is run here again, on the current stream, until nothing fails any
  // more.
  void settle_libraries(std::span<const at::Tensor> inputs, cudaStream_t stream);

  // Issues one task on `stream`. Errors name the task, its operator and the user's source line. What an
  // operator throws while the stream is captured becomes a refusal, RecordError.
  void issue(TaskId task, cudaStream_t stream, BoundProgram::Lane& lane,
             const BlasWorkspaces::Lender& lender);

  // After the last task: brings home what a task made elsewhere because it asked for another size than
  // recorded.
  void settle_results(cudaStream_t stream);

  // Whether a number that kernels take from host memory is other than at the last call.
  bool update_scalars(std::span<const at::Tensor> inputs) { return scalars_.update(inputs); }

  // The ways in and out, for whoever launches the tasks. What is said to be copied between `inputs` or fresh
  // results and this program's memory may be copied by any means, always in the same order; the rest goes
  // over the caller's current stream. Nothing waits on the host.
  using Results = std::vector<std::pair<BufferId, c10::Storage>>;
  Results make_results() const;  // memory for one replay, which will be the caller's
  void say_copies_in(std::span<const at::Tensor> inputs, std::vector<Copy>& copies) const;
  void say_copies_out(std::span<const at::Tensor> inputs, const Results& results,
                      std::vector<Copy>& copies) const;
  void copy_rest_in(std::span<const at::Tensor> inputs);
  Tensors hand_out(std::span<const at::Tensor> inputs, const Results& results);
  bool copies_while_handing_out() const;

  // All of it over `stream`, which is the current one.
  void copy_in(std::span<const at::Tensor> inputs, cudaStream_t stream);
  Tensors copy_out(std::span<const at::Tensor> inputs, cudaStream_t stream);

  // While it lives, this program's memory is used on `stream`. That starts, on the device, when the use
  // before has ended, whatever stream that was on. Refused, with Error, in somebody's capture.
  class Use {
   public:
    Use(DeviceProgram& program, cudaStream_t stream);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    // Nothing comes after the graph just launched on the stream, which says itself when it is done. Saying so
    // behind it would make the host wait until all of the graph is with the device.
    void ends_with_graph() { ends_with_graph_ = true; }

   private:
    DeviceProgram& program_;
    cudaStream_t stream_;
    UniqueStreamId id_;
    bool ends_with_graph_ = false;
  };
  // As the last node of a graph that uses the memory.
  void say_done_in_graph(cudaStream_t captured) { done_.record_in_graph(captured); }
  // Waits on the host for the end of the last use.
  void wait_until_idle();
  // Makes the current stream wait for it.
  void let_current_stream_wait();

  ExecutableReport report() const;

 private:
  // Where a buffer lies in the executable's own memory, behind the planned part.
  struct Place {
    BufferId buffer;
    std::uint64_t offset = 0;  // in the arena
    ByteRange range;           // the bytes of the buffer that are kept
  };
  struct InputCopy {
    std::size_t input;
    at::Tensor place;
    void* address = nullptr;  // of the place
    std::size_t bytes = 0;    // of the whole span, where that can be copied at once
    bool in_one_piece = false;
    bool written = false;
  };

  std::vector<Place> place_inputs_and_results();
  std::uint64_t needed_bytes() const;  // of planned memory, inputs and results
  std::vector<void*> addresses();
  void find_input_copies();
  void find_copied_results();
  c10::Storage result_storage(BufferId buffer, const Results& results) const;

  ExecutionPlan plan_;
  BindOptions options_;
  c10::Device device_;
  std::uint64_t arena_bytes_ = 0;
  std::vector<Place> places_;
  std::shared_ptr<Arena> arena_;
  BoundProgram bound_;
  OutputPlan outputs_;
  HostScalars scalars_;
  LaunchedDraws draws_;
  std::vector<InputCopy> input_copies_;
  std::vector<BufferId> copied_results_;
  std::shared_ptr<const BlasWorkspaces> workspaces_;  // known once warm; graphs share it
  std::thread::id warm_on_;                           // libraries remember their choices by thread
  Event done_;                                        // the end of the last use of the memory
  UniqueStreamId last_stream_;                        // which that was on
};

}  // namespace nimble::cuda
