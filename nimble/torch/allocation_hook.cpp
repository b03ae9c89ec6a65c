#include "nimble/torch/allocation_hook.h"

#include <utility>

namespace nimble {
namespace {
thread_local AllocationHook* installed = nullptr;
}

AllocationHook* AllocationHook::current() { return installed; }

AllocationHookGuard::AllocationHookGuard(AllocationHook* hook) : previous_(std::exchange(installed, hook)) {}
AllocationHookGuard::~AllocationHookGuard() { installed = previous_; }

}  // namespace nimble
