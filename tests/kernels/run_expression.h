#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "nimble/kernels/expression.h"
#include "tests/kernels/host_device.h"

namespace nimble::testing {

inline at::Tensor without_memory(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

struct Ran {
  kernels::KernelSource kernel;
  std::vector<at::Tensor> results;
};

// The kernel that `source` makes of an expression, run on the host.
template <class Source>
Ran run_expression(Source source, const std::string& text, const std::vector<at::Tensor>& inputs) {
  const kernels::Expression expression = kernels::parse_expression(text);
  std::vector<at::Tensor> shapes, tensors = inputs, results;
  for (const auto& tensor : inputs) shapes.push_back(without_memory(tensor));
  const auto steps = evaluate_steps(expression, shapes);
  for (const kernels::Value& value : expression.results) {
    const auto& shape = (value.kind == kernels::Value::Kind::kInput ? shapes : steps)[value.index];
    results.push_back(at::empty_strided(shape.sizes(), shape.strides(), shape.scalar_type()));
    tensors.push_back(results.back());
  }
  const kernels::KernelSource kernel = source(expression, inputs, steps, results);
  run_on_host(kernel, tensors);
  return {kernel, results};
}

}  // namespace nimble::testing
