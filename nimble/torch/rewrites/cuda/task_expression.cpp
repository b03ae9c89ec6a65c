#include "nimble/torch/rewrites/cuda/task_expression.h"

#include <algorithm>
#include <iterator>

#include "nimble/kernels/calls_as_steps.h"
#include "nimble/kernels/row_steps.h"
#include "nimble/torch/rewrites/cuda/spreading.h"
#include "nimble/torch/rewrites/pointwise_tasks.h"

namespace nimble {

using kernels::Step;
using kernels::Value;

namespace {

// One element stands for several.
bool is_spread(const TensorRef& ref) {
  for (std::size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.strides[d] == 0 && ref.sizes[d] > 1) return true;
  }
  return false;
}

std::vector<Value*> values_in(std::vector<Step>& steps) {
  std::vector<Value*> all;
  for (Step& step : steps) {
    for (kernels::Argument& argument : step.arguments) {
      if (auto* value = std::get_if<Value>(&argument)) all.push_back(value);
    }
  }
  return all;
}

}  // namespace

TaskSteps steps_of(const Program& program, const Task& task) {
  std::vector<TensorRef> inputs;
  const Step call = step_of(program, task, [&](const TensorRef& ref) { return input_of(inputs, ref); });
  return {kernels::as_steps(call, first_result(task).dtype), std::move(inputs)};
}

Value TaskExpression::add(const Program& program, const Task& task) {
  TaskSteps added = steps_of(program, task);
  // A sum over a number that is spread counts it as often as it is there: in a kernel it would be there once.
  const bool over_rows = std::ranges::any_of(added.steps, kernels::is_over_rows);
  std::vector<std::optional<Value>> given(added.inputs.size());  // what the steps do not need is none
  for (const Value* value : values_in(added.steps)) {
    if (value->kind != Value::Kind::kInput || given[value->index]) continue;
    const TensorRef& ref = added.inputs[value->index];
    given[value->index] = over_rows && is_spread(ref) ? input_of(inputs, ref) : value_of(ref);
  }
  auto& steps = expression.steps;
  const std::size_t first = steps.size();
  for (Value* value : values_in(added.steps)) {
    *value = value->kind == Value::Kind::kInput ? *given[value->index] : kernels::step(first + value->index);
  }
  std::ranges::move(added.steps, std::back_inserter(steps));
  expression.inputs = inputs.size();
  made.push_back({first_result(task), steps.size() - 1});
  return kernels::step(steps.size() - 1);
}

Value TaskExpression::value_of(const TensorRef& ref) {
  for (const Made& known : made) {
    const auto shape = shape_before_spreading(known.ref, ref);
    if (!shape) continue;
    if (*shape == known.ref.sizes) return kernels::step(known.step);
    expression.steps.push_back(
        {"reshape", {kernels::step(known.step), c10::IValue(at::IntArrayRef(*shape))}});
    return kernels::step(expression.steps.size() - 1);
  }
  return input_of(inputs, ref);
}

}  // namespace nimble
