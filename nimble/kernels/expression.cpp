#include "nimble/kernels/expression.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "nimble/core/error.h"

namespace nimble::kernels {
namespace {

c10::OperatorHandle operator_named(const std::string& function) {
  const auto dot = function.find('.');
  const std::string overload = dot == function.npos ? "" : function.substr(dot + 1);
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + function.substr(0, dot), overload});
  if (!found) throw InvalidInput("[nimble::Expression] there is no operator aten::" + function);
  return *found;
}

// ATen tells types and layouts of most calls without data. For the others there is a call with the same
// result in that respect.
std::optional<at::Tensor> run_without_data(const std::string& function, const torch::jit::Stack& arguments) {
  for (const char* keeps_its_type : {"relu", "relu6", "hardtanh", "hardswish", "abs"}) {
    if (function == keeps_its_type) return at::neg(arguments.at(0).toTensor());
  }
  if (function == "where.self") {
    return arguments.at(0).toTensor() * arguments.at(1).toTensor() + arguments.at(2).toTensor();
  }
  if (function == "masked_fill.Scalar") return arguments.at(0).toTensor() * arguments.at(1).toTensor();
  return {};
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
  const auto op = operator_named(step.function);
  if (stack.size() != op.schema().arguments().size())
    throw InvalidInput("[nimble::Expression] " + step.function + " takes " +
                       std::to_string(op.schema().arguments().size()) + " arguments, not " +
                       std::to_string(stack.size()));
  if (stack.at(0).toTensor().is_meta()) {
    if (auto shape = run_without_data(step.function, stack)) return *std::move(shape);
  }
  op.callBoxed(&stack);
  return stack.at(0).toTensor();
}

}  // namespace

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
