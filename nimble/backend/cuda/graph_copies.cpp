#include "nimble/backend/cuda/graph_copies.h"

namespace nimble::cuda {
namespace {

// What was captured last on this stream.
cudaGraphNode_t last_node(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  std::size_t count = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count),
        "cudaStreamGetCaptureInfo");
  return nodes[count - 1];
}

}  // namespace

void GraphCopies::capture(std::span<const Copy> copies, cudaStream_t stream) {
  for (const Copy& copy : copies) {
    check(cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
    nodes_.push_back({last_node(stream), copy});
  }
}

void GraphCopies::update(std::span<const Copy> copies, const GraphExec& graph) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].copy == copies[i]) continue;
    check(cudaGraphExecMemcpyNodeSetParams1D(graph.get(), nodes_[i].node, copies[i].to, copies[i].from,
                                             copies[i].bytes, cudaMemcpyDeviceToDevice),
          "cudaGraphExecMemcpyNodeSetParams1D");
    nodes_[i].copy = copies[i];
  }
}

}  // namespace nimble::cuda
