#pragma once

#include <span>
#include <vector>

#include "nimble/kernels/expression.h"
#include "nimble/torch/program.h"

namespace nimble {

// A task as steps (kernels::as_steps), the tensors that are their inputs, and which of them make its results:
// the first alone, or all (kernels::norm_with_numbers), where somebody looks at those. No steps where that
// cannot be.
struct TaskSteps {
  std::vector<kernels::Step> steps;
  std::vector<TensorRef> inputs;
  std::vector<std::size_t> results;
};
enum class Results { kFirst, kAll };
TaskSteps steps_of(const Program& program, const Task& task, Results wanted);

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

  // Adds the work of a task, which comes behind those that are there already; what it makes, as the last of
  // `made`.
  std::span<const Made> add(const Program& program, const Task& task, Results wanted);

 private:
  kernels::Value value_of(const TensorRef& ref);
};

}  // namespace nimble
