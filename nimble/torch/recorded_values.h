#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <vector>

#include "nimble/torch/record_error.h"

namespace nimble {

// What recording asks of the values that operators are given and return.

template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

// A Python number that stands where a tensor is expected: it has no identity, so it is an argument by value.
inline bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

inline const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

// By tensor among the values: the first that is the very same one.
std::vector<std::size_t> twins_among(c10::ArrayRef<c10::IValue> values);

// Why `what` cannot be replayed with such a tensor, if so.
std::optional<Refusal> unsupported(const std::string& what, const at::Tensor& tensor);

}  // namespace nimble
