#include "nimble/backend/cuda/planned_allocator.h"

#include <c10/cuda/CUDAGuard.h>

#include "nimble/backend/cuda/delegating_allocator.h"
#include "nimble/backend/watched_memory.h"
#include "nimble/core/error.h"

namespace nimble::cuda {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

c10::Allocator* pytorch_allocator = nullptr;  // set once, by install_planned_allocator

using Memory = WatchedMemory<pytorch_allocator>;

c10::Device current_device() { return {c10::kCUDA, c10::cuda::current_device()}; }

class PlannedAllocator final : public DelegatingAllocator {
 public:
  using DelegatingAllocator::DelegatingAllocator;

  c10::DataPtr allocate(std::size_t bytes) override {
    AllocationHook* hook = AllocationHook::current();
    if (!hook || bytes == 0) return base_->allocate(bytes);
    return Memory::allocate(bytes, current_device(), *hook);
  }

  void* raw_alloc(std::size_t bytes) override {
    AllocationHook* hook = AllocationHook::current();
    if (!hook || bytes == 0) return base_->raw_alloc(bytes);
    const c10::Device device = current_device();
    if (void* planned = hook->serve(bytes, device)) return planned;
    void* real = base_->raw_alloc(bytes);
    hook->allocated(real, bytes, device);
    return real;
  }

  void raw_delete(void* pointer) override {
    if (Memory::arenas().contains(pointer)) return;
    if (AllocationHook* hook = AllocationHook::current()) hook->freed(pointer);
    base_->raw_delete(pointer);
  }

  void* getBaseAllocation(void* pointer, std::size_t* size) override {
    const char* arena = Memory::arenas().begin_of(pointer);
    return base_->getBaseAllocation(arena ? const_cast<char*>(arena) : pointer, size);
  }

  // Elsewhere this is PyTorch's own, which it compares deleters with to know its own memory.
  c10::DeleterFnPtr raw_deleter() const override {
    return AllocationHook::current() ? &Memory::free_raw : base_->raw_deleter();
  }

  // An arena belongs to a schedule, which orders its uses itself.
  using DelegatingAllocator::recordStream;
  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    if (pointer.get_deleter() == &Memory::keep || Memory::arenas().contains(pointer.get())) return;
    if (pointer.get_deleter() != &Memory::free_watched) return base_->recordStream(pointer, stream);
    // PyTorch looks at the deleter to know its own memory; watched memory is its own behind our deleter.
    c10::DataPtr as_its_own(pointer.get(), pointer.get(), base_->raw_deleter(), pointer.device());
    base_->recordStream(as_its_own, stream);
    as_its_own.release_context();
  }
};

}  // namespace

void install_planned_allocator() {
  static const bool installed = [] {
    caching::CUDAAllocator* pytorchs = caching::get();
    if (pytorchs->name() == "cudaMallocAsync") {
      throw Error(
          "[nimble::compile] PyTorch was told to allocate with cudaMallocAsync, whose memory cannot be "
          "planned. Leave 'backend:cudaMallocAsync' out of PYTORCH_CUDA_ALLOC_CONF");
    }
    pytorch_allocator = pytorchs;
    static auto* ours = new PlannedAllocator(pytorchs);
    caching::allocator.store(ours);
    return true;
  }();
  static_cast<void>(installed);
}

Arena::Arena(std::size_t bytes, c10::Device device) : size_(bytes) {
  if (bytes == 0) return;
  const c10::cuda::CUDAGuard on_device(device);
  memory_ = caching::get()->allocate(bytes);
  Memory::arenas().add(data(), size_);
}

Arena::~Arena() {
  if (size_ > 0) Memory::arenas().remove(data());
}

}  // namespace nimble::cuda
