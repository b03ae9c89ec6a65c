#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "nimble/kernels/cuda/expression_call.h"
#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/element_source.h"
#include "nimble/kernels/into.h"
#include "nimble/kernels/pointwise_source.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

bool has_kernel(const Expression& expression, at::TensorList inputs) {
  const auto handles = [](const at::Tensor& tensor) { return !device_type(tensor.scalar_type()).empty(); };
  return are_on_cuda_or_nowhere(inputs) && std::all_of(inputs.begin(), inputs.end(), handles) &&
         std::all_of(expression.steps.begin(), expression.steps.end(),
                     [](const Step& step) { return kernels::has_kernel(step); });
}

std::vector<at::Tensor> pointwise_cuda(at::TensorList inputs, std::string_view text) {
  const Expression expression = parse_expression(text);
  if (!has_kernel(expression, inputs)) return evaluate(expression, inputs);
  const auto guard = on_device_of(inputs[0]);
  const Shapes shapes(expression, inputs);
  std::vector<at::Tensor> results = empty_results(expression, shapes, inputs[0]);
  launch(pointwise_source(expression, inputs, shapes.steps, results), inputs, results);
  return results;
}

void pointwise_out_cuda(at::TensorList inputs, std::string_view text, at::TensorList out) {
  const Expression expression = parse_expression(text);
  if (!has_kernel(expression, inputs)) return pointwise_out(inputs, text, out);
  const auto guard = on_device_of(inputs[0]);
  const Shapes shapes(expression, inputs);
  expect_as_many(out, expression.results.size());
  for (std::size_t r = 0; r < out.size(); ++r) {
    const at::Tensor& shape = shapes.of(expression.results[r]);
    expect_fits(out[r], shape.sizes(), shape.scalar_type());
  }
  launch(pointwise_source(expression, inputs, shapes.steps, out), inputs, out);
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
