#pragma once

#include <c10/core/Allocator.h>

#include "nimble/backend/arena_map.h"
#include "nimble/torch/allocation_hook.h"

namespace nimble {

// What the allocators that stand in front of PyTorch's have in common, on whatever device: memory of arenas,
// which is nobody's to free, and memory of PyTorch's own whose end a hook is told of. `pytorch` is the
// allocator behind, a variable because deleters are plain functions and it is known at run time only.
template <c10::Allocator*& pytorch>
struct WatchedMemory {
  static ArenaMap& arenas() {
    static auto* map = new ArenaMap;  // outlives every static that frees memory late
    return *map;
  }

  static void keep(void*) {}

  static void free_watched(void* pointer) {
    if (AllocationHook* hook = AllocationHook::current()) hook->freed(pointer);
    pytorch->raw_deleter()(pointer);
  }

  // oneDNN and others take raw memory and give it back by address alone, so one function must know both
  // kinds.
  static void free_raw(void* pointer) {
    if (!arenas().contains(pointer)) free_watched(pointer);
  }

  static c10::DataPtr allocate(std::size_t bytes, c10::Device device, AllocationHook& hook) {
    if (void* planned = hook.serve(bytes, device)) return {planned, planned, &keep, device};
    c10::DataPtr real = pytorch->allocate(bytes);
    // Our deleter needs the address as context, which PyTorch's own allocators use already.
    if (real.get() != real.get_context() || !pytorch->raw_deleter()) return real;
    hook.allocated(real.get(), bytes, device);
    void* pointer = real.release_context();
    return {pointer, pointer, &free_watched, device};
  }
};

}  // namespace nimble
