#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace nimble {

// A few operators compute things that have nothing to do with each other, and are told by a mask which of
// them are wanted: a convolution's gradients for its input and for its weight. Asked for one after the other
// they have the same bits, and as two tasks they can run side by side: the next layer's backward pass does
// not wait for this layer's weight.
//
// The arguments of those calls, in the order in which the operator itself works; none for a call that is made
// as it is. Only on a GPU: elsewhere there is nothing to gain.
std::vector<torch::jit::Stack> calls_apart(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace nimble
