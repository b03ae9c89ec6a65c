#pragma once

#include <ATen/cuda/CUDAContextLight.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "nimble/backend/cuda/planned_allocator.h"
#include "nimble/backend/executable.h"

namespace nimble::cuda {

// PyTorch keeps one workspace for cuBLAS and one for cuBLASLt for each (handle, stream) and never asks for it
// again, so a memory plan does not see them. Here they are found, placed and lent to the tasks that use them.
//
// Each is as large as any kernel could want (32 MiB on an H100), and most kernels write to little of it or
// none. Which one is chosen follows from the size that PyTorch promises, which stays as it is; what it writes
// to follows from the shapes alone (cuBLAS repeats its bits from run to run), so it is measured once and only
// that much is kept.
struct WorkspaceNeed {
  std::uint64_t blas = 0, lt = 0;  // bytes; not 0 where the task asks for one at all
  friend bool operator==(const WorkspaceNeed&, const WorkspaceNeed&) = default;
};

// Watches, on one thread and one stream, which tasks ask for a workspace and how much of it they write to.
// What was there before comes back at the end.
class WorkspaceProbe {
 public:
  explicit WorkspaceProbe(cudaStream_t stream);
  ~WorkspaceProbe();
  WorkspaceProbe(const WorkspaceProbe&) = delete;
  WorkspaceProbe& operator=(const WorkspaceProbe&) = delete;

  void before_task();
  // `again` issues the task once more, in workspaces on which its traces show.
  WorkspaceNeed after_task(const std::function<void()>& again);

 private:
  void find_handle();
  WorkspaceNeed take_asked_for();

  cudaStream_t stream_;
  void* handle_ = nullptr;  // this thread's, once it is known to have one
  c10::DataPtr blas_before_, lt_before_;
};

// Takes out the workspaces that PyTorch keeps for these streams: the driver gives a dead stream's handle to
// the next.
void forget_workspaces(std::span<const cudaStream_t> streams);

// The workspaces of one schedule, in memory of their own: two tasks share one only if the schedule orders
// them.
class BlasWorkspaces {
 public:
  BlasWorkspaces(const ExecutionPlan& plan, std::vector<WorkspaceNeed> needs, c10::Device device);

  const std::vector<WorkspaceNeed>& needs() const { return needs_; }  // by task
  std::uint64_t bytes() const { return memory_ ? memory_->size() : 0; }

  // Lends workspaces to the tasks that this thread issues while it lives. Must not begin during a capture.
  class Lender {
   public:
    explicit Lender(const BlasWorkspaces& workspaces);

    // For one task on one stream; taken back when destroyed.
    class Loan {
     public:
      Loan(const Lender& lender, TaskId task, cudaStream_t stream);
      ~Loan();
      Loan(const Loan&) = delete;
      Loan& operator=(const Loan&) = delete;

     private:
      const Lender& lender_;
      cudaStream_t stream_;
      bool lent_ = false;
      c10::DataPtr blas_before_, lt_before_;
    };

   private:
    const BlasWorkspaces& workspaces_;
    void* handle_ = nullptr;
  };

 private:
  std::vector<WorkspaceNeed> needs_;    // by task
  std::vector<std::uint64_t> offsets_;  // by task
  std::optional<Arena> memory_;
};

}  // namespace nimble::cuda
