#pragma once

#include "nimble/torch/program_builder.h"

namespace nimble {

// Feeds every operator call of this thread, and of others that PyTorch hands its state to (those of
// TorchScript's fork, and autograd's, unless these are switched off for this thread), to a builder, in
// programs without Python. While it lives no other dispatch mode may be pushed or popped around it. In a
// Python process use the Python package's mode: code there looks at the mode stack and expects Python objects
// on it.
class DispatchModeGuard {
 public:
  explicit DispatchModeGuard(ProgramBuilder& builder);
  ~DispatchModeGuard();
  DispatchModeGuard(const DispatchModeGuard&) = delete;
  DispatchModeGuard& operator=(const DispatchModeGuard&) = delete;
};

// An operator that is nothing but calls of others, for which PyTorch has no kernel of its own on this device.
// Under inference_mode a dispatch mode sees these whole; taking them apart makes a program look the same in
// every mode.
bool is_composite(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Runs a composite operator with the dispatch mode still active, so that its parts are seen.
void call_composite(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace nimble
