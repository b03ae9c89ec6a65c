#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/launch.h"
#include "nimble/kernels/pointwise_source.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

at::Tensor without_memory(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

bool has_kernel(const Expression& expression, at::TensorList inputs) {
  const auto handles = [](const at::Tensor& tensor) {
    return (tensor.is_cuda() || tensor.is_meta()) && !device_type(tensor.scalar_type()).empty();
  };
  return std::all_of(inputs.begin(), inputs.end(), handles) &&
         std::all_of(expression.steps.begin(), expression.steps.end(),
                     [](const Step& step) { return kernels::has_kernel(step); });
}

std::vector<at::Tensor> pointwise_cuda(at::TensorList inputs, std::string_view text) {
  const Expression expression = parse_expression(text);
  if (!has_kernel(expression, inputs)) return evaluate(expression, inputs);
  const auto guard = on_device_of(inputs[0]);
  // ATen itself tells which types and layouts its calls would give.
  std::vector<at::Tensor> shapes;
  for (const at::Tensor& tensor : inputs) shapes.push_back(without_memory(tensor));
  const auto steps = evaluate_steps(expression, shapes);
  std::vector<at::Tensor> results;
  for (const Value& value : expression.results) {
    const auto& shape = (value.kind == Value::Kind::kInput ? shapes : steps)[value.index];
    results.push_back(
        at::empty_strided(shape.sizes(), shape.strides(), inputs[0].options().dtype(shape.dtype())));
  }
  std::vector<void*> pointers;
  for (const at::Tensor& tensor : inputs) pointers.push_back(address_of(tensor));
  for (const at::Tensor& tensor : results) pointers.push_back(address_of(tensor));
  launch(pointwise_source(expression, inputs, steps, results), pointers);
  return results;
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) { library.impl("pointwise", pointwise_cuda); }

// Without memory it tells shapes, and which kernel it needs.
TORCH_LIBRARY_IMPL(nimble, Meta, library) { library.impl("pointwise", pointwise_cuda); }

}  // namespace
}  // namespace nimble::kernels
