#pragma once

#include <ATen/core/stack.h>

#include <memory>
#include <span>
#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/torch/allocation_hook.h"
#include "nimble/torch/program.h"
#include "nimble/torch/thread_state.h"

namespace nimble {

// A program whose every tensor argument has been built once, over storages that can be pointed elsewhere: a
// replay builds no tensor metadata. Where an operator allocates its result, the planned address is served to
// it, so the arguments of later tasks already look at the right place.
class BoundProgram {
 public:
  // `addresses[b]` is where buffer b lies, or nullptr where that is known only at run time (inputs, results).
  // What the program leaves outside and lies elsewhere moves there, into `memory`.
  BoundProgram(std::shared_ptr<const Program> program, std::span<void* const> addresses,
               std::shared_ptr<void> memory);

  ~BoundProgram();
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const Program& program() const { return *program_; }

  // Points every tensor of this buffer at `data`.
  void point(BufferId buffer, void* data);
  // The same for good: whoever holds a tensor of this buffer keeps `memory` alive.
  void own(BufferId buffer, at::DataPtr memory);
  void* address(BufferId buffer) const { return addresses_[buffer.index()]; }

  // What one thread needs to run tasks, kept between tasks and replays.
  class Lane {
   public:
    Lane();
    ~Lane();
    // Allocations that were neither planned nor meant for a result, since the lane was made.
    std::uint64_t unplanned() const;

   private:
    friend class BoundProgram;
    struct State;
    std::unique_ptr<State> state_;
  };

  // Runs one task on this thread. Tasks that are ordered by the schedule must be run in that order; others
  // may run at the same time on other lanes. Throws what the operator throws, and Error if its results look
  // otherwise than recorded.
  void run(TaskId task, Lane& lane);

  // The storage that a buffer's tensors look at.
  const c10::Storage& storage_of(BufferId buffer) const { return storages_[buffer.index()]; }

  // Memory that belongs to this replay alone, such as that of a result: given by hand, or by PyTorch's
  // allocator to a task whose result has no planned address. Kept until released.
  void give(BufferId buffer, c10::Storage storage);
  const c10::Storage& given(BufferId buffer) const { return given_[buffer.index()]; }
  void release_given();

  // Before our memory goes; nobody may be using it.
  void move_out_escaped() noexcept;
  bool has_moved_in() const { return !moved_in_.empty(); }
  // Somebody may have given other memory to what lives outside: before a replay it comes back to where tasks
  // write.
  void take_back_escaped();

  // Tells autograd that the replay wrote to outside tensors and inputs.
  void bump_versions(std::span<const at::Tensor> inputs) const;

 private:
  struct BoundTask;
  class Server;

  void move_in(BufferId buffer);
  void move_out(BufferId buffer) const;
  torch::jit::Stack bind_arguments(const Task& task) const;
  void adopt(const TensorRef& expected, const at::Tensor& result, TaskId task);
  // For a result that lies on another device than when it was recorded: fused attention returns its seed in
  // host memory, but on the GPU while a graph is captured.
  void rebind(BufferId buffer, const c10::Storage& storage);

  std::shared_ptr<const Program> program_;
  std::shared_ptr<void> memory_;
  std::vector<c10::Storage> storages_;  // by buffer
  std::vector<void*> planned_;          // by buffer: where it lies unless a replay is told otherwise
  // By buffer: memory that users of a result share. A result that a task makes elsewhere must not end it.
  std::vector<std::shared_ptr<at::DataPtr>> owned_;
  std::vector<void*> addresses_;     // by buffer: where it lies now
  std::vector<c10::Storage> given_;  // by buffer: memory that PyTorch's allocator gave during this replay
  std::vector<BoundTask> tasks_;
  std::vector<at::Tensor> written_outside_;
  std::vector<std::size_t> written_inputs_;
  std::vector<BufferId> moved_in_;
};

// Points the input buffers at the caller's tensors, whatever offset they have in their storages.
void point_inputs(BoundProgram& bound, std::span<const at::Tensor> inputs);

}  // namespace nimble
