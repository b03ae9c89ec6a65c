#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "nimble/torch/operator_facts.h"

namespace nimble {

// What an operator with one result gives, called by name.
inline at::Tensor call_operator(const char* name, const char* overload, torch::jit::Stack arguments) {
  find_operator(name, overload).callBoxed(&arguments);
  return arguments[0].toTensor();
}

}  // namespace nimble
