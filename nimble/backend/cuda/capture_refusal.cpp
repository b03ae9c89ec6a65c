#include "nimble/backend/cuda/capture_refusal.h"

#include "nimble/backend/cuda/handles.h"
#include "nimble/torch/record_error.h"

namespace nimble::cuda {

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void refuse_in_graph(const Task& task, const std::string& reason) {
  std::string why = "it does something that a CUDA graph cannot hold, such as waiting for the GPU";
  // PyTorch's errors go on with hints for debugging.
  if (!reason.empty()) why += ": " + reason.substr(0, reason.find('\n'));
  throw RecordError(
      Refusal{task.op.operator_name().name, why, "Leave it outside the compiled function", task.where}
          .message());
}

}  // namespace nimble::cuda
