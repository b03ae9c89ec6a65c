#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// What operators whose work is an expression have in common.

// Tensors without memory in the place of those that a call is given, and what each step makes of them: ATen
// itself tells which types and layouts its calls would give.
struct Shapes {
  std::vector<at::Tensor> inputs, steps;

  Shapes(const Expression& expression, at::TensorList given);
  const at::Tensor& of(const Value& value) const {
    return (value.kind == Value::Kind::kInput ? inputs : steps)[value.index];
  }
};

// New tensors for the results, where `like` lies.
std::vector<at::Tensor> empty_results(const Expression& expression, const Shapes& shapes,
                                      const at::Tensor& like);

// Launches a kernel whose arguments are the inputs and then the results.
void launch(const KernelSource& kernel, at::TensorList inputs, at::TensorList results);

// Whether all lie on a GPU, or nowhere.
bool are_on_cuda_or_nowhere(at::TensorList tensors);

}  // namespace nimble::kernels
