#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <span>

namespace nimble::kernels {

// A call that will come soon, with tensors that have no memory in place of its own.
struct ComingCall {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
};

// What is being compiled. Letting go of it waits until all of it is there.
using Compiling = std::shared_ptr<const void>;

// Begins to compile the kernels that these calls of our operators will need on `device`, many at once and in
// the order of the calls: a call that comes meanwhile waits for its own kernel alone. Does nothing where
// there is no CUDA.
Compiling compile_ahead(std::span<const ComingCall> calls, c10::Device device);

}  // namespace nimble::kernels
