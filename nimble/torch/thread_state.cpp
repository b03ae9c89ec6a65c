#include "nimble/torch/thread_state.h"

namespace nimble {
namespace {

// A recording is itself a dispatch mode; a replay must not look as if one were active.
const c10::DispatchKeySet kModeKeys({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});

}  // namespace

ThreadState ThreadState::here() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  return {keys.included_ - kModeKeys, keys.excluded_, c10::AutogradState::get_tls_state().get_grad_mode()};
}

ThreadStateGuard::ThreadStateGuard()
    : saved_keys_(c10::impl::tls_local_dispatch_key_set()),
      saved_autograd_(c10::AutogradState::get_tls_state()) {}

ThreadStateGuard::~ThreadStateGuard() {
  c10::impl::_force_tls_local_dispatch_key_set(saved_keys_);
  c10::AutogradState::set_tls_state(saved_autograd_);
}

void ThreadStateGuard::enter(const ThreadState& state) {
  auto keys = saved_keys_;
  keys.included_ = state.included;
  keys.excluded_ = state.excluded;
  c10::impl::_force_tls_local_dispatch_key_set(keys);
  auto autograd = saved_autograd_;
  autograd.set_grad_mode(state.grad_mode);
  autograd.set_inference_mode(false);  // bound tensors are ordinary tensors, whatever mode was recorded
  c10::AutogradState::set_tls_state(autograd);
}

}  // namespace nimble
