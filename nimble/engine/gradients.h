#pragma once

#include <functional>
#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/torch/program_builder.h"

namespace nimble {

using LeafGradient = ProgramBuilder::LeafGradient;

// The gradients that autograd keeps for leaf tensors (parameters), around one recorded run: a replay asks for
// what they were before it, where that mattered, and leaves them as the run left them.
class Gradients {
 public:
  Gradients() = default;
  explicit Gradients(const Tensors& leaves);  // as they are now

  // The recorded run is over. False if it went backward to leaves that were not known before: whether their
  // gradients were there when it began, nobody can tell. They are known from then on.
  bool recorded(const ProgramBuilder& builder);

  Tensors leaves() const;
  Tensors left() const;  // gradients that the run left

  // Visits each leaf with the gradient that the run left, which may be none.
  void for_each(const std::function<void(const at::Tensor& leaf, const at::Tensor& left)>& visit) const;

  // Whether the gradients are now as the run found them, as far as it looked at them.
  bool hold() const;

  // Gives every leaf the gradient that the run left; a replay has filled it.
  void put_back() const;

  // Gives every leaf the gradient that it had before the run.
  void undo() const;

 private:
  struct Place {
    at::Tensor leaf, before, after;
    bool before_matters = false;
  };
  std::vector<Place> places_;
};

// Makes each leaf's gradient the given tensor.
void set_gradients(const std::vector<LeafGradient>& gradients);

}  // namespace nimble
