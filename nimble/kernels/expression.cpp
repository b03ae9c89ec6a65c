#include "nimble/kernels/expression.h"

#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/stack.h>

#include "nimble/core/error.h"
#include "nimble/kernels/row_steps.h"

namespace nimble::kernels {
namespace {

// What a call would give, without its data. The type is that of the same call on one element; the layout that
// of ATen's iterator, which pointwise operators have in common. ATen's own kernels for `meta` tensors would
// tell both, but some are written in Python: they are missing in a C++ program, and import much of PyTorch
// when they are first called.
at::Tensor run_without_data(const c10::OperatorHandle& op, torch::jit::Stack stack) {
  std::vector<at::Tensor> given;
  for (c10::IValue& value : stack) {
    if (!value.isTensor()) continue;
    const at::Tensor& tensor = given.emplace_back(value.toTensor());
    value = at::zeros(at::DimVector(tensor.dim(), 1), tensor.options().device(at::kCPU));
  }
  op.callBoxed(&stack);
  at::TensorIteratorConfig config;
  config.add_owned_output(at::Tensor())
      .check_all_same_dtype(false)
      .declare_static_dtype_and_device(stack.at(0).toTensor().scalar_type(), at::kMeta);
  for (const at::Tensor& tensor : given) config.add_owned_const_input(tensor);
  return config.build().output();
}

at::Tensor run(const Step& step, at::TensorList inputs, const std::vector<at::Tensor>& made) {
  torch::jit::Stack stack;
  for (const Argument& argument : step.arguments) {
    if (const auto* value = std::get_if<Value>(&argument)) {
      stack.emplace_back(value->kind == Value::Kind::kInput ? inputs[value->index] : made[value->index]);
    } else {
      stack.push_back(std::get<c10::IValue>(argument));
    }
  }
  const auto op = operator_of(step);
  if (stack.size() != op.schema().arguments().size())
    throw InvalidInput("[nimble::Expression] " + step.function + " takes " +
                       std::to_string(op.schema().arguments().size()) + " arguments, not " +
                       std::to_string(stack.size()));
  if (stack.at(0).toTensor().is_meta() && !is_view(step)) {
    return is_over_rows(step) ? made_over_rows(step, stack.at(0).toTensor())
                              : run_without_data(op, std::move(stack));
  }
  op.callBoxed(&stack);
  return stack.at(0).toTensor();
}

}  // namespace

c10::OperatorHandle operator_of(const Step& step) {
  const std::string& function = step.function;
  const auto dot = function.find('.');
  const std::string overload = dot == function.npos ? "" : function.substr(dot + 1);
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + function.substr(0, dot), overload});
  if (!found) throw InvalidInput("[nimble::Expression] there is no operator aten::" + function);
  return *found;
}

bool is_view(const Step& step) { return step.function == "reshape"; }

std::vector<at::Tensor> evaluate_steps(const Expression& expression, at::TensorList inputs) {
  if (inputs.size() != expression.inputs)
    throw InvalidInput("[nimble::Expression] " + std::to_string(expression.inputs) + " inputs are needed, " +
                       std::to_string(inputs.size()) + " were given: " + to_string(expression));
  std::vector<at::Tensor> made;
  for (const Step& step : expression.steps) made.push_back(run(step, inputs, made));
  return made;
}

std::vector<at::Tensor> evaluate(const Expression& expression, at::TensorList inputs) {
  const auto made = evaluate_steps(expression, inputs);
  std::vector<at::Tensor> results;
  for (const Value& result : expression.results) {
    results.push_back(result.kind == Value::Kind::kInput ? inputs[result.index].clone() : made[result.index]);
  }
  return results;
}

}  // namespace nimble::kernels
