#include "nimble/backend/cuda/captured_graph.h"

#include <c10/cuda/CUDAGuard.h>

#include <optional>

#include "nimble/backend/cuda/capture_refusal.h"
#include "nimble/torch/record_error.h"

namespace nimble::cuda {
namespace {

// A capture on one stream, in a mode that leaves other threads alone. Given up unless finished.
class Capture {
 public:
  explicit Capture(cudaStream_t origin) : origin_(origin) {
    check(cudaStreamBeginCapture(origin_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }
  ~Capture() {
    if (finished_) return;
    cudaGraph_t graph = nullptr;
    static_cast<void>(cudaStreamEndCapture(origin_, &graph));
    const Graph discarded(graph);
    static_cast<void>(cudaGetLastError());
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Graph finish() {
    finished_ = true;
    cudaGraph_t graph = nullptr;
    try {
      check(cudaStreamEndCapture(origin_, &graph), "cudaStreamEndCapture");
    } catch (const Error& error) {
      throw RecordError(Refusal{"the function",
                                std::string("its operators do not make a CUDA graph: ") + error.what(),
                                "An operator may use a stream of its own without coming back from it", ""}
                            .message());
    }
    return Graph(graph);
  }

 private:
  cudaStream_t origin_;
  bool finished_ = false;
};

// PyTorch may have made workspaces for the streams of the capture, which are about to go.
struct ForgetWorkspaces {
  std::span<const cudaStream_t> streams;
  ~ForgetWorkspaces() { forget_workspaces(streams); }
};

// What tasks made elsewhere than planned is of no use once the capture is over, however it ends.
struct ReleaseGiven {
  BoundProgram& bound;
  ~ReleaseGiven() { bound.release_given(); }
};

// Something that a task did may have ended the capture without any error where it happened.
void check_still_capturing(cudaStream_t stream, const Task& task) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  if (status != cudaStreamCaptureStatusActive) refuse_in_graph(task);
}

}  // namespace

CapturedGraph::CapturedGraph(DeviceProgram& program, std::vector<cudaStream_t> streams, IssueAll issue_all,
                             std::span<const Copy> copies_in, std::span<const Copy> copies_out)
    : pool_(program.device().index()), workspaces_(program.workspaces()), generators_(program.program()) {
  const Stream origin;
  streams.push_back(origin.get());
  const BlasWorkspaces::Lender lender(*workspaces_);
  const ReleaseGiven release{program.bound()};
  {
    const ForgetWorkspaces forget{streams};
    const PrivatePool::Use use(pool_, streams);
    BoundProgram::Lane lane;
    Capture capture(origin.get());
    copies_in_.capture(copies_in, origin.get());
    issue_all(origin.get(), [&](TaskId task, cudaStream_t stream) {
      std::optional<GraphGenerators::Drawing> drawing;
      if (program.program().task(task).draw) drawing.emplace(generators_, task);
      program.issue(task, stream, lane, lender);
      check_still_capturing(stream, program.program().task(task));
    });
    program.settle_results(origin.get());
    copies_out_.capture(copies_out, origin.get());
    program.say_done_in_graph(origin.get());
    graph_ = capture.finish();
    unplanned_ = lane.unplanned();
  }
  generators_.finish();
  executable_ = instantiate(graph_, origin.get());
  check(cudaStreamSynchronize(origin.get()), "cudaStreamSynchronize");
}

void CapturedGraph::launch(cudaStream_t stream, std::span<const Copy> copies_in,
                           std::span<const Copy> copies_out) {
  copies_in_.update(copies_in, executable_);
  copies_out_.update(copies_out, executable_);
  generators_.advance();
  cuda::launch(executable_, stream);
}

}  // namespace nimble::cuda
