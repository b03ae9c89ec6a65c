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

TaskSteps steps_of(const Program& program, const Task& task, Results wanted) {
  std::vector<TensorRef> inputs;
  const Step call = step_of(program, task, [&](const TensorRef& ref) { return input_of(inputs, ref); });
  const auto type = first_result(task).dtype;
  if (wanted == Results::kFirst) {
    auto steps = kernels::as_steps(call, type);
    const std::size_t last = steps.size() - 1;
    return {std::move(steps), std::move(inputs), {last}};
  }
  auto norm = kernels::norm_with_numbers(call, type);
  if (!norm) return {};
  return {std::move(norm->steps), std::move(inputs), std::move(norm->results)};
}

std::span<const Made> TaskExpression::add(const Program& program, const Task& task, Results wanted) {
  TaskSteps added = steps_of(program, task, wanted);
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
  for (std::size_t r = 0; r < added.results.size(); ++r) {
    made.push_back({std::get<TensorRef>(task.results[r]), first + added.results[r]});
  }
  return std::span(made).last(added.results.size());
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
