#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "nimble/backend/cuda/device_program.h"
#include "nimble/backend/cuda/generators.h"
#include "nimble/backend/cuda/graph_copies.h"
#include "nimble/backend/cuda/handles.h"
#include "nimble/backend/cuda/private_pool.h"

namespace nimble::cuda {

// Issues one task onto a stream of the capture.
using IssueTask = c10::function_ref<void(TaskId, cudaStream_t)>;
// Issues all tasks, starting from and coming back to the given stream.
using IssueAll = c10::function_ref<void(cudaStream_t origin, IssueTask)>;

// A program captured into one CUDA graph, with what the graph needs to stay right: memory beside the plan,
// and the random generators. The capture is of this thread alone; other threads allocate and launch
// meanwhile. A failed capture leaves nothing behind here: RecordError says which operator cannot be captured,
// and the next capture works. What it may leave in libraries, see DeviceProgram::settle_libraries.
class CapturedGraph {
 public:
  // `streams` are the streams that `issue_all` uses besides its origin. The program must be warm, on this
  // thread. The copies are done before and after all tasks.
  CapturedGraph(DeviceProgram& program, std::vector<cudaStream_t> streams, IssueAll issue_all,
                std::span<const Copy> copies_in = {}, std::span<const Copy> copies_out = {});

  // On the current stream, which is `stream`, with these copies instead.
  void launch(cudaStream_t stream, std::span<const Copy> copies_in = {},
              std::span<const Copy> copies_out = {});

  // The same copies once more and nothing but the launch, for whoever wants to know what it costs.
  void launch_again(cudaStream_t stream) { cuda::launch(executable_, stream); }

  std::uint64_t unplanned_allocations() const { return unplanned_; }

 private:
  PrivatePool pool_;
  std::shared_ptr<const BlasWorkspaces> workspaces_;
  GraphGenerators generators_;
  Graph graph_;  // its nodes are the names of those in the executable one
  GraphExec executable_;
  GraphCopies copies_in_, copies_out_;
  std::uint64_t unplanned_ = 0;
};

}  // namespace nimble::cuda
