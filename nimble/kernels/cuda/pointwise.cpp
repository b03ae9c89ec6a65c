#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/launch.h"
#include "nimble/kernels/into.h"
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

// ATen itself tells which types and layouts its calls would give.
struct Shapes {
  std::vector<at::Tensor> inputs, steps;

  Shapes(const Expression& expression, at::TensorList given) {
    for (const at::Tensor& tensor : given) inputs.push_back(without_memory(tensor));
    steps = evaluate_steps(expression, inputs);
  }
  const at::Tensor& of(const Value& value) const {
    return (value.kind == Value::Kind::kInput ? inputs : steps)[value.index];
  }
};

void run(const Expression& expression, at::TensorList inputs, const Shapes& shapes, at::TensorList results) {
  std::vector<void*> pointers;
  for (const at::Tensor& tensor : inputs) pointers.push_back(address_of(tensor));
  for (const at::Tensor& tensor : results) pointers.push_back(address_of(tensor));
  launch(pointwise_source(expression, inputs, shapes.steps, results), pointers);
}

std::vector<at::Tensor> pointwise_cuda(at::TensorList inputs, std::string_view text) {
  const Expression expression = parse_expression(text);
  if (!has_kernel(expression, inputs)) return evaluate(expression, inputs);
  const auto guard = on_device_of(inputs[0]);
  const Shapes shapes(expression, inputs);
  std::vector<at::Tensor> results;
  for (const Value& value : expression.results) {
    const at::Tensor& shape = shapes.of(value);
    results.push_back(
        at::empty_strided(shape.sizes(), shape.strides(), inputs[0].options().dtype(shape.dtype())));
  }
  run(expression, inputs, shapes, results);
  return results;
}

at::Tensor& pointwise_out_cuda(at::TensorList inputs, std::string_view text, at::Tensor& out) {
  const Expression expression = parse_expression(text);
  if (!has_kernel(expression, inputs)) return pointwise_out(inputs, text, out);
  const auto guard = on_device_of(inputs[0]);
  const Shapes shapes(expression, inputs);
  const at::Tensor& shape = shapes.of(expression.results.at(0));
  expect_fits(out, shape.sizes(), shape.scalar_type());
  run(expression, inputs, shapes, {out});
  return out;
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) {
  library.impl("pointwise", pointwise_cuda);
  library.impl("pointwise.out", pointwise_out_cuda);
}

// Without memory they tell shapes, and which kernel they need.
TORCH_LIBRARY_IMPL(nimble, Meta, library) {
  library.impl("pointwise", pointwise_cuda);
  library.impl("pointwise.out", pointwise_out_cuda);
}

}  // namespace
}  // namespace nimble::kernels
