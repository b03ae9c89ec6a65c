#pragma once

#include <ATen/core/ivalue.h>

namespace nimble {

// Whether two arguments that are no tensors of the program (numbers, strings, generators, lists of them) are
// the same.
bool same_value(const c10::IValue& a, const c10::IValue& b);

}  // namespace nimble
