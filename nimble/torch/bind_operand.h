#pragma once

#include <optional>
#include <variant>

#include "nimble/torch/program.h"

namespace nimble {

// An operand as a call of its operator takes it. `tensor_of(const TensorRef&)` gives its tensors, in order.
template <class TensorOf>
c10::IValue bind_operand(const Operand& operand, TensorOf&& tensor_of) {
  if (const auto* ref = std::get_if<TensorRef>(&operand)) return tensor_of(*ref);
  const auto* list = std::get_if<TensorRefList>(&operand);
  if (!list) return std::get<c10::IValue>(operand);
  if (list->of_optionals) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const auto& ref : list->refs) tensors.push_back(ref ? std::optional(tensor_of(*ref)) : std::nullopt);
    return tensors;
  }
  c10::List<at::Tensor> tensors;
  for (const auto& ref : list->refs) tensors.push_back(ref ? tensor_of(*ref) : at::Tensor());
  return tensors;
}

}  // namespace nimble
