#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace nimble {

// What the dispatcher and autograd keep in thread-local variables and a kernel can notice. A task is replayed
// under the state it was recorded under: under another one an operator may take another path and return other
// results.
struct ThreadState {
  c10::DispatchKeySet included;
  c10::DispatchKeySet excluded;
  bool grad_mode = false;

  static ThreadState here();
  friend bool operator==(const ThreadState&, const ThreadState&) = default;
};

// Replays under `state` until destroyed. Cheap: three thread-local words.
class ThreadStateGuard {
 public:
  ThreadStateGuard();
  ~ThreadStateGuard();
  ThreadStateGuard(const ThreadStateGuard&) = delete;
  ThreadStateGuard& operator=(const ThreadStateGuard&) = delete;

  void enter(const ThreadState& state);

 private:
  c10::impl::LocalDispatchKeySet saved_keys_;
  c10::AutogradState saved_autograd_;
};

}  // namespace nimble
