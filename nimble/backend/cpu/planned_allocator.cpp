#include "nimble/backend/cpu/planned_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <new>

#include "nimble/backend/arena_map.h"
#include "nimble/torch/allocation_hook.h"

namespace nimble::cpu {
namespace {

c10::Allocator* pytorch_allocator = nullptr;  // set once, by install_planned_allocator

ArenaMap& arenas() {
  static auto* map = new ArenaMap;  // outlives every static that frees memory late
  return *map;
}

void keep(void*) {}

void free_watched(void* pointer) {
  if (AllocationHook* hook = AllocationHook::current()) hook->freed(pointer);
  pytorch_allocator->raw_deleter()(pointer);
}

// oneDNN and others take raw memory and give it back by address alone, so one function must know both kinds.
void free_raw(void* pointer) {
  if (!arenas().contains(pointer)) free_watched(pointer);
}

class PlannedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    AllocationHook* hook = AllocationHook::current();
    if (!hook || bytes == 0) return pytorch_allocator->allocate(bytes);
    if (void* planned = hook->serve(bytes, c10::kCPU))
      return {planned, planned, &keep, c10::Device(c10::kCPU)};
    c10::DataPtr real = pytorch_allocator->allocate(bytes);
    // The deleter tells the watcher; it needs the address as context, which PyTorch's own allocator uses
    // already.
    if (real.get() != real.get_context() || !pytorch_allocator->raw_deleter()) return real;
    hook->allocated(real.get(), bytes, c10::kCPU);
    void* pointer = real.release_context();
    return {pointer, pointer, &free_watched, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_raw; }
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
  arenas().add(data_, size_);
}

Arena::~Arena() {
  if (!data_) return;
  arenas().remove(data_);
  munmap(data_, size_);
}

}  // namespace nimble::cpu
