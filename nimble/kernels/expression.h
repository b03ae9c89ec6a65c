#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace nimble::kernels {

// A value inside an expression: the n-th input, or what the n-th step made.
struct Value {
  enum class Kind { kInput, kStep };
  Kind kind = Kind::kInput;
  std::size_t index = 0;

  friend bool operator==(const Value&, const Value&) = default;
};
inline Value input(std::size_t index) { return {Value::Kind::kInput, index}; }
inline Value step(std::size_t index) { return {Value::Kind::kStep, index}; }

// A tensor, or a number, string, list of whole numbers or none by value.
using Argument = std::variant<Value, c10::IValue>;

// One call of an ATen operator, with all arguments that its schema has; of several results the first counts.
struct Step {
  std::string function;  // "add.Tensor", as in "aten::add.Tensor"
  std::vector<Argument> arguments;
};

// Work as a value: operators of ATen, pointwise ones and those over rows, in an order in which they can run.
// It means what those calls mean, types and roundings in between included, so a kernel made of pointwise ones
// gives eager's bits.
struct Expression {
  std::size_t inputs = 0;
  std::vector<Step> steps;
  std::vector<Value> results;
};

// The operator that a step calls; throws InvalidInput where ATen has none of this name.
c10::OperatorHandle operator_of(const Step& step);

// Whether a call only looks at what it is given in another shape.
bool is_view(const Step& step);

// "%0 = add.Tensor(x0, x1, 1); %1 = relu(%0); return %1". Reading it gives the same expression again; throws
// InvalidInput, naming the place, where it is none.
std::string to_string(const Expression& expression);
Expression parse_expression(std::string_view text);

// What each step makes of these inputs, by calling ATen. On `meta` tensors it tells types and layouts alone.
std::vector<at::Tensor> evaluate_steps(const Expression& expression, at::TensorList inputs);
// The results alone.
std::vector<at::Tensor> evaluate(const Expression& expression, at::TensorList inputs);

}  // namespace nimble::kernels
