#include "nimble/backend/cpu/planned_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <new>

#include "nimble/backend/watched_memory.h"

namespace nimble::cpu {
namespace {

c10::Allocator* pytorch_allocator = nullptr;  // set once, by install_planned_allocator

using Memory = WatchedMemory<pytorch_allocator>;

class PlannedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    AllocationHook* hook = AllocationHook::current();
    if (!hook || bytes == 0) return pytorch_allocator->allocate(bytes);
    return Memory::allocate(bytes, c10::kCPU, *hook);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Memory::free_raw; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    pytorch_allocator->copy_data(destination, source, bytes);
  }
};

}  // namespace

void install_planned_allocator() {
  static const bool installed = [] {
    pytorch_allocator = c10::GetCPUAllocator();
    static auto* ours = new PlannedAllocator;
    constexpr std::uint8_t kAboveOthers = 0xff;
    c10::SetCPUAllocator(ours, kAboveOthers);
    return true;
  }();
  static_cast<void>(installed);
}

Arena::Arena(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes,
          MADV_HUGEPAGE);  // fewer page faults and address translations; a hint, so its result is moot
  data_ = static_cast<char*>(memory);
  Memory::arenas().add(data_, size_);
}

Arena::~Arena() {
  if (!data_) return;
  Memory::arenas().remove(data_);
  munmap(data_, size_);
}

}  // namespace nimble::cpu
