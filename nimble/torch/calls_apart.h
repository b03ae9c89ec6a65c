#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace nimble {

// A few operators do things that have nothing to do with each other. As one task all of it waits for the last
// of what is read, and all that follows waits for the whole; as several tasks each can run as early as
// possible. The kernels are the same and so are their bits.
//
// - A convolution's or layer norm's gradients for its input and for its weight: a mask tells which are
// wanted.
//   The layer before waits for the first only.
// - What an optimizer does with lists of tensors: large models' lists are cut into stretches, and each is
//   updated as soon as its gradients are there.
//
// The arguments of the calls to make instead, in the order in which the operator itself works; none for a
// call that is made as it is. A list that they give is that of all calls, one behind the other; any other
// result is given by one of them. Only on a GPU: elsewhere there is nothing to gain.
std::vector<torch::jit::Stack> calls_apart(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace nimble
