#pragma once

#include <c10/core/Device.h>

#include <cstddef>

namespace nimble {

// Sees every allocation that PyTorch makes on one thread while it is installed there. Recording watches
// through one, replay answers through one; the delegating allocators of the backends call whichever is
// installed.
class AllocationHook {
 public:
  // Where the next `bytes` bytes on `device` shall lie, or nullptr to let PyTorch's own allocator decide.
  // Memory handed out here is never given back through `freed`.
  virtual void* serve(std::size_t bytes, c10::Device device) = 0;

  // PyTorch's own allocator gave out `pointer`, or is about to take it back.
  virtual void allocated(void* pointer, std::size_t bytes, c10::Device device) = 0;
  virtual void freed(void* pointer) = 0;

  // The hook of the calling thread; nullptr, as nearly always, where nobody watches.
  static AllocationHook* current();

 protected:
  ~AllocationHook() = default;
};

// Installs a hook on this thread for a while, or hides the one that is installed (nullptr).
class AllocationHookGuard {
 public:
  explicit AllocationHookGuard(AllocationHook* hook);
  ~AllocationHookGuard();
  AllocationHookGuard(const AllocationHookGuard&) = delete;
  AllocationHookGuard& operator=(const AllocationHookGuard&) = delete;

 private:
  AllocationHook* previous_;
};

}  // namespace nimble
