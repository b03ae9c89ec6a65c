#pragma once

#include <vector>

#include "nimble/kernels/expression.h"
#include "nimble/torch/program.h"

namespace nimble {

// A task as steps (kernels::as_steps), and the tensors that are their inputs.
struct TaskSteps {
  std::vector<kernels::Step> steps;
  std::vector<TensorRef> inputs;
};
TaskSteps steps_of(const Program& program, const Task& task);

// A tensor that a task makes, and the step that does it.
struct Made {
  TensorRef ref;
  std::size_t step;
};

// An expression of tasks. What one of them makes and another looks at, perhaps in another shape, is no input.
struct TaskExpression {
  kernels::Expression expression;
  std::vector<TensorRef> inputs;
  std::vector<Made> made;

  // Adds the work of a task, which comes behind those that are there already; what it makes.
  kernels::Value add(const Program& program, const Task& task);

 private:
  kernels::Value value_of(const TensorRef& ref);
};

}  // namespace nimble
