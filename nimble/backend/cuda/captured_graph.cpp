#include "nimble/backend/cuda/captured_graph.h"

#include <c10/cuda/CUDAGuard.h>

#include <mutex>
#include <optional>

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
    check(cudaStreamEndCapture(origin_, &graph), "cudaStreamEndCapture");
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

// Something that a task did may have ended the capture without any error where it happened.
void check_still_capturing(cudaStream_t stream, const Program& program, TaskId task) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  if (status == cudaStreamCaptureStatusActive) return;
  const std::string& where = program.task(task).where;
  throw Error("[nimble::cuda] " + task_name(program, task) + (where.empty() ? "" : " at " + where) +
              " does something that a CUDA graph cannot hold, such as waiting for the GPU");
}

}  // namespace

CapturedGraph::CapturedGraph(DeviceProgram& program, std::vector<cudaStream_t> streams, IssueAll issue_all)
    : pool_(program.device().index()), workspaces_(program.workspaces()), generators_(program.program()) {
  const Stream origin;
  streams.push_back(origin.get());
  const BlasWorkspaces::Lender lender(*workspaces_);
  Graph graph;
  {
    const ForgetWorkspaces forget{streams};
    const PrivatePool::Use use(pool_, streams);
    BoundProgram::Lane lane;
    Capture capture(origin.get());
    issue_all(origin.get(), [&](TaskId task, cudaStream_t stream) {
      std::optional<GraphGenerators::Drawing> drawing;
      if (program.program().task(task).draw) drawing.emplace(generators_, task);
      program.issue(task, stream, lane, lender);
      check_still_capturing(stream, program.program(), task);
    });
    program.settle_results(origin.get());
    graph = capture.finish();
    unplanned_ = lane.unplanned();
  }
  generators_.finish();
  program.bound().release_given();
  executable_ = instantiate(graph, origin.get());
  check(cudaStreamSynchronize(origin.get()), "cudaStreamSynchronize");
}

void CapturedGraph::launch(cudaStream_t stream) {
  generators_.advance();
  cuda::launch(executable_, stream);
}

std::unique_lock<std::mutex> one_capture_at_a_time() {
  static auto* mutex = new std::mutex;
  return std::unique_lock(*mutex);
}

}  // namespace nimble::cuda
