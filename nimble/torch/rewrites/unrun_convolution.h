#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace nimble {

// What stands for an operator while only the form of its result matters: for a convolution, one that gives
// zeros laid out as the convolution would; for any other, itself.
c10::OperatorHandle unrun(const c10::OperatorHandle& op);

// The operator that such a one stands for.
c10::OperatorHandle run_again(const c10::OperatorHandle& op);

}  // namespace nimble
