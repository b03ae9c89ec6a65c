#pragma once

#include <cuda_runtime_api.h>

#include <utility>

namespace nimble::cuda {

// Throws nimble::Error that names the call, and clears the error so that the next call does not see it again.
void check(cudaError_t status, const char* call);

// A handle of the CUDA runtime, destroyed with its owner. Errors on destruction are ignored: at exit the
// driver may already be gone.
template <class Handle, cudaError_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_) static_cast<void>(destroy(handle_));
  }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

// A stream that does not wait for the legacy default stream. PyTorch's own pool has 32 of them for each
// device; a schedule may need more, all different.
class Stream {
 public:
  Stream();
  cudaStream_t get() const { return handle_.get(); }

 private:
  Owned<cudaStream_t, cudaStreamDestroy> handle_;
};

// Which stream a handle stands for. A handle may be given to another stream once its own was destroyed, and
// one handle stands for the default stream of each thread; an id is never used again.
using UniqueStreamId = unsigned long long;
UniqueStreamId id_of(cudaStream_t stream);

class Event {
 public:
  enum class Timing { kOff, kOn };
  explicit Event(Timing timing = Timing::kOff);

  void record(cudaStream_t stream);
  // As a node of the graph being captured: it is recorded at each launch, and can be read outside of the
  // graph.
  void record_in_graph(cudaStream_t stream);
  void make_wait(cudaStream_t stream) const;
  void synchronize() const;
  float milliseconds_since(const Event& start) const;

 private:
  Owned<cudaEvent_t, cudaEventDestroy> handle_;
};

using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
cudaError_t destroy_graph(cudaGraphExec_t graph);  // allowed while others capture, in whatever mode
using GraphExec = Owned<cudaGraphExec_t, destroy_graph>;

// Ready to launch, and already on the device.
GraphExec instantiate(const Graph& graph, cudaStream_t stream);
void launch(const GraphExec& graph, cudaStream_t stream);

}  // namespace nimble::cuda
