#include "nimble/torch/same_value.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "nimble/torch/outside_state.h"

namespace nimble {

bool same_value(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor()) {  // a number in a tensor's place, or none
    if (!a.toTensor().defined() || !b.toTensor().defined())
      return a.toTensor().defined() == b.toTensor().defined();
    return same_bits(a.toTensor(), b.toTensor());
  }
  if (a.tagKind() != b.tagKind()) return false;
  if (a.isGenerator()) return a.toGenerator() == b.toGenerator();
  if (a.isList()) {
    const auto left = a.toListRef(), right = b.toListRef();
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), same_value);
  }
  if (a.isDouble() && std::isnan(a.toDouble()) && std::isnan(b.toDouble())) return true;
  return a == b;
}

}  // namespace nimble
