#include "nimble/torch/packed.h"

#include <ATen/ATen.h>

#include "nimble/torch/allocation_hook.h"

namespace nimble {

const at::Tensor& Packed::get(const std::function<at::Tensor()>& pack) {
  if (!value_.defined()) {
    const AllocationHookGuard not_planned(nullptr);
    value_ = pack();
  }
  return value_;
}

Packed* Packed::in(const Operand& operand) {
  const auto* value = std::get_if<c10::IValue>(&operand);
  if (!value || !value->isCustomClass()) return nullptr;
  static const auto type = c10::getCustomClassType<c10::intrusive_ptr<Packed>>();
  return *value->type() == *type ? value->toCustomClass<Packed>().get() : nullptr;
}

c10::IValue Packed::make() { return c10::IValue(c10::make_intrusive<Packed>()); }

}  // namespace nimble

TORCH_LIBRARY(nimble, library) { library.class_<nimble::Packed>("Packed"); }
