#include <ATen/ATen.h>
#include <torch/library.h>

#include <vector>

#include "nimble/kernels/cuda/expression_call.h"
#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/references.h"
#include "nimble/kernels/row_source.h"

namespace nimble::kernels {
namespace {

std::vector<at::Tensor> rows_cuda(at::TensorList inputs, std::string_view text, std::int64_t candidate) {
  const Expression expression = parse_expression(text);
  const Shapes shapes(expression, inputs);
  if (!are_on_cuda_or_nowhere(inputs) || !has_row_kernel(expression, inputs, shapes.steps)) {
    return rows(inputs, text, candidate);
  }
  const auto guard = on_device_of(inputs[0]);
  std::vector<at::Tensor> results = empty_results(expression, shapes, inputs[0]);
  launch(row_source(expression, inputs, shapes.steps, results, candidate), inputs, results);
  return results;
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) { library.impl("rows", rows_cuda); }

// Without memory it tells shapes, and which kernel it needs.
TORCH_LIBRARY_IMPL(nimble, Meta, library) { library.impl("rows", rows_cuda); }

}  // namespace
}  // namespace nimble::kernels
