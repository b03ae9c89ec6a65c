#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// Tensors that a foreach operator works on side by side.
using RefList = std::vector<TensorRef>;
// Of the same types, laid out in the same way.
bool are_alike(const RefList& a, const RefList& b);

// A task that calls one of ATen's foreach operators, as a step of an expression whose values are lists.
struct ForeachCall {
  std::string function = {};  // "_foreach_add.List": the form that makes a new list
  std::vector<std::variant<RefList, c10::IValue>> arguments = {};
  RefList result = {};    // what it writes
  bool in_place = false;  // the result is the first argument
};

// The task as such a call, where a kernel of ours could do it: all tensors at one place of the lists are
// floating-point ones of one type, laid out alike and without gaps, on one device. The others may be tensors
// without a dimension, a number for each place or one for all. A list of numbers must hold but one.
std::optional<ForeachCall> foreach_call(const Program& program, const Task& task);

// The lists of a call, what it writes last.
std::vector<const RefList*> lists_of(const ForeachCall& call);

}  // namespace nimble
