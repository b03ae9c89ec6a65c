#include "nimble/kernels/cuda/expression_call.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nimble/kernels/cuda/launch.h"

namespace nimble::kernels {
namespace {

at::Tensor without_memory(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

}  // namespace

Shapes::Shapes(const Expression& expression, at::TensorList given) {
  for (const at::Tensor& tensor : given) inputs.push_back(without_memory(tensor));
  steps = evaluate_steps(expression, inputs);
}

std::vector<at::Tensor> empty_results(const Expression& expression, const Shapes& shapes,
                                      const at::Tensor& like) {
  std::vector<at::Tensor> results;
  for (const Value& value : expression.results) {
    const at::Tensor& shape = shapes.of(value);
    results.push_back(at::empty_strided(shape.sizes(), shape.strides(), like.options().dtype(shape.dtype())));
  }
  return results;
}

void launch(const KernelSource& kernel, at::TensorList inputs, at::TensorList results) {
  std::vector<void*> pointers;
  for (const at::Tensor& tensor : inputs) pointers.push_back(address_of(tensor));
  for (const at::Tensor& tensor : results) pointers.push_back(address_of(tensor));
  launch(kernel, pointers);
}

bool are_on_cuda_or_nowhere(at::TensorList tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.is_cuda() || tensor.is_meta(); });
}

}  // namespace nimble::kernels
