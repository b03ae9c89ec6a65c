#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

namespace nimble::cuda {

// A CUDA allocator that hands everything on to another one. Subclasses change what they need to.
class DelegatingAllocator : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
 protected:
  using Base = c10::cuda::CUDACachingAllocator::CUDAAllocator;
  using Device = c10::DeviceIndex;
  using Pool = c10::MempoolId_t;

 public:
  explicit DelegatingAllocator(Base* base) : base_(base) {}

  // c10::Allocator
  c10::DataPtr allocate(std::size_t bytes) override { return base_->allocate(bytes); }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override {
    return base_->is_simple_data_ptr(pointer);
  }
  c10::DeleterFnPtr raw_deleter() const override { return base_->raw_deleter(); }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    base_->copy_data(destination, source, bytes);
  }

  // c10::DeviceAllocator
  bool initialized() override { return base_->initialized(); }
  void emptyCache(Pool pool) override { base_->emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(Device device) override {
    return base_->getDeviceStats(device);
  }
  void resetAccumulatedStats(Device device) override { base_->resetAccumulatedStats(device); }
  void resetPeakStats(Device device) override { base_->resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(Device device) override {
    return base_->getMemoryInfo(device);
  }

  // CUDAAllocator: memory
  void* raw_alloc(std::size_t bytes) override { return base_->raw_alloc(bytes); }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    return base_->raw_alloc_with_stream(bytes, stream);
  }
  void raw_delete(void* pointer) override { base_->raw_delete(pointer); }
  void* getBaseAllocation(void* pointer, std::size_t* size) override {
    return base_->getBaseAllocation(pointer, size);
  }
  using Base::recordStream;
  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    base_->recordStream(pointer, stream);
  }
  cudaError_t memcpyAsync(void* destination, int destination_device, const void* source, int source_device,
                          std::size_t bytes, cudaStream_t stream, bool p2p_enabled) override {
    return base_->memcpyAsync(destination, destination_device, source, source_device, bytes, stream,
                              p2p_enabled);
  }

  // CUDAAllocator: settings
  void init(int device_count) override { base_->init(device_count); }
  double getMemoryFraction(Device device) override { return base_->getMemoryFraction(device); }
  void setMemoryFraction(double fraction, Device device) override {
    base_->setMemoryFraction(fraction, device);
  }
  void enable(bool value) override { base_->enable(value); }
  bool isEnabled() const override { return base_->isEnabled(); }
  void enablePeerAccess(Device device, Device peer) override { base_->enablePeerAccess(device, peer); }

  // CUDAAllocator: pools
  void beginAllocateToPool(Device device, Pool pool, std::function<bool(cudaStream_t)> filter) override {
    base_->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(Device device, Pool pool) override { base_->endAllocateToPool(device, pool); }
  void releasePool(Device device, Pool pool) override { base_->releasePool(device, pool); }
  int getPoolUseCount(Device device, Pool pool) override { return base_->getPoolUseCount(device, pool); }
  void createOrIncrefPool(Device device, Pool pool, std::shared_ptr<Base> allocator) override {
    base_->createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(Device device, Pool pool, bool use) override { base_->setUseOnOOM(device, pool, use); }
  void setNoSplit(Device device, Pool pool) override { base_->setNoSplit(device, pool); }
  bool checkPoolLiveAllocations(Device device, Pool pool,
                                const std::unordered_set<void*>& expected) override {
    return base_->checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(Device device,
                                                                                      Pool pool) override {
    return base_->getCheckpointState(device, pool);
  }
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      Device device, std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override {
    return base_->setCheckpointPoolState(device, std::move(state));
  }

  // CUDAAllocator: other processes
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* pointer) override {
    return base_->shareIpcHandle(pointer);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return base_->getIpcDevPtr(std::move(handle));
  }

  // CUDAAllocator: what it tells
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      Device device) override {
    return base_->getExpandableSegmentSizes(device);
  }
  void cacheInfo(Device device, std::size_t* largest) override { base_->cacheInfo(device, largest); }
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(Pool pool, bool include_traces) override {
    return base_->snapshot(pool, include_traces);
  }
  bool isHistoryEnabled() override { return base_->isHistoryEnabled(); }
  void recordHistory(bool enabled, c10::CachingDeviceAllocator::CreateContextFn context,
                     std::size_t most_entries, c10::CachingDeviceAllocator::RecordContext when, bool clear,
                     const std::vector<std::string>& skip) override {
    base_->recordHistory(enabled, context, most_entries, when, clear, skip);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    base_->recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& context) override { base_->pushCompileContext(context); }
  void popCompileContext() override { base_->popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { base_->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return base_->getUserMetadata(); }
  void attachOutOfMemoryObserver(c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override {
    base_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(c10::CachingDeviceAllocator::AllocatorTraceTracker tracker) override {
    base_->attachAllocatorTraceTracker(std::move(tracker));
  }
  std::string name() override { return base_->name(); }

 protected:
  Base* base_;
};

}  // namespace nimble::cuda
