#include "nimble/backend/cuda/handles.h"

#include <string>

#include "nimble/core/error.h"

namespace nimble::cuda {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Error(std::string("[nimble::cuda] ") + call + ": " + cudaGetErrorString(status) + " (" +
              cudaGetErrorName(status) + ")");
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  handle_ = decltype(handle_)(stream);
}

UniqueStreamId id_of(cudaStream_t stream) {
  UniqueStreamId id = 0;
  check(cudaStreamGetId(stream, &id), "cudaStreamGetId");
  return id;
}

Event::Event(Timing timing) {
  cudaEvent_t event = nullptr;
  const unsigned flags = timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  handle_ = decltype(handle_)(event);
}

void Event::record(cudaStream_t stream) { check(cudaEventRecord(handle_.get(), stream), "cudaEventRecord"); }

void Event::record_in_graph(cudaStream_t stream) {
  check(cudaEventRecordWithFlags(handle_.get(), stream, cudaEventRecordExternal), "cudaEventRecordWithFlags");
}

void Event::make_wait(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, handle_.get(), 0), "cudaStreamWaitEvent");
}

void Event::synchronize() const { check(cudaEventSynchronize(handle_.get()), "cudaEventSynchronize"); }

float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start.handle_.get(), handle_.get()), "cudaEventElapsedTime");
  return milliseconds;
}

cudaError_t destroy_graph(cudaGraphExec_t graph) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  const cudaError_t status = cudaGraphExecDestroy(graph);
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  return status;
}

GraphExec instantiate(const Graph& graph, cudaStream_t stream) {
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
        "cudaGraphInstantiate (the option graph=False replays without a graph)");
  GraphExec owned(executable);
  check(cudaGraphUpload(executable, stream), "cudaGraphUpload");
  return owned;
}

void launch(const GraphExec& graph, cudaStream_t stream) {
  check(cudaGraphLaunch(graph.get(), stream), "cudaGraphLaunch");
}

}  // namespace nimble::cuda
