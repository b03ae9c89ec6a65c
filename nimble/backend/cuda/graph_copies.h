#pragma once

#include <span>
#include <vector>

#include "nimble/backend/cuda/handles.h"

namespace nimble::cuda {

// Bytes that go from one place on the device to another.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;

  friend bool operator==(const Copy&, const Copy&) = default;
};

// Copies that are nodes of a graph, so that one launch does all. The caller's end of each is another at each
// launch, and told to the graph before it: that takes the host a microsecond where a copy on the stream takes
// four, and the device does not wait between copy and graph.
class GraphCopies {
 public:
  // While a graph is captured: adds these copies on `stream`, one after the other.
  void capture(std::span<const Copy> copies, cudaStream_t stream);

  // Before a launch: as many as were captured, of the same sizes.
  void update(std::span<const Copy> copies, const GraphExec& graph);

 private:
  struct Node {
    cudaGraphNode_t node;  // of the graph that was captured, which must stay
    Copy copy;
  };
  std::vector<Node> nodes_;
};

}  // namespace nimble::cuda
