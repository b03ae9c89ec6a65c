#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nimble/kernels/expression.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {

// What the rewrites that make expressions of tasks share.

// "add.Tensor" of aten::add.Tensor; empty for operators that are not ATen's.
std::string function_of(const Task& task);

// Whether a task makes a new tensor of tensors that nobody changes, all on one device, and numbers: whether
// there is a kernel for its operator is for nimble/kernels to tell. Who sees to it that the task does not
// come to lie behind a change may allow changes.
bool can_be_step(const Program& program, const Uses& uses, const Task& task, bool allows_changes = false);
// And makes nothing else.
bool makes_one_tensor(const Program& program, const Uses& uses, const Task& task,
                      bool allows_changes = false);

// A number of the user's code where an operator takes a tensor: PyTorch wraps it in one, on the host.
std::optional<c10::IValue> known_number(const Program& program, const Operand& operand);

// "mul.Scalar" of "mul.Tensor"; empty where the operator takes no numbers.
std::string function_of_number(const std::string& function);

// Where `ref` is among `inputs`, to which it is added where it is not.
kernels::Value input_of(std::vector<TensorRef>& inputs, TensorRef ref);

// The task as a step of an expression. `value_of(ref)` tells what its tensors are there.
template <class ValueOf>
kernels::Step step_of(const Program& program, const Task& task, ValueOf&& value_of) {
  kernels::Step step{function_of(task), {}};
  for (const Operand& operand : task.arguments) {
    if (const auto number = known_number(program, operand)) {
      step.arguments.emplace_back(*number);
      step.function = function_of_number(step.function);
    } else if (const auto* ref = std::get_if<TensorRef>(&operand)) {
      step.arguments.emplace_back(value_of(*ref));
    } else {
      step.arguments.emplace_back(std::get<c10::IValue>(operand));
    }
  }
  return step;
}

// Whether a kernel of ours does the task with the bits of PyTorch's own (kernels::has_exact_kernel), for the
// types that it has to do with.
bool keeps_bits(const Program& program, const Task& task);

// Whether two tasks belong to the same part of the program, both to the way back or neither, and ran with the
// same settings, so that one may do the work of both.
bool belong_together(const Task& a, const Task& b);

}  // namespace nimble
