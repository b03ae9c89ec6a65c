#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>

namespace nimble::kernels {

// A call that will come soon, with tensors that have no memory in place of its own.
struct ComingCall {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
};

// Compiles the kernels that these calls of our operators will need on `device`, many at once, so that none
// has to wait for its own later. Does nothing where there is no CUDA.
void compile_ahead(std::span<const ComingCall> calls, c10::Device device);

}  // namespace nimble::kernels
