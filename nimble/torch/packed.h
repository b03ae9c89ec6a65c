#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <functional>

#include "nimble/torch/program.h"

namespace nimble {

// A weight in a form that only a library understands (oneDNN's blocked layouts), kept by the task that uses
// it. The operator packs the weight when it finds nothing here, and never looks at the weight again until it
// is told to forget: when a tensor that the weight comes from has changed.
class Packed final : public torch::CustomClassHolder {
 public:
  // What `pack` made, the first time or since. Its memory belongs to no plan.
  const at::Tensor& get(const std::function<at::Tensor()>& pack);
  void forget() { value_ = at::Tensor(); }

  // As an argument of a task; null if the operand is something else.
  static Packed* in(const Operand& operand);
  static c10::IValue make();

 private:
  at::Tensor value_;
};

}  // namespace nimble
