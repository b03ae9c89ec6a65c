#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// Whether a generated kernel can do this call; otherwise it must not become a step of an expression.
bool has_kernel(const Step& step);

// Whether it gives the bits of ATen's own kernel, whatever compilers made the two: no operation in it is
// rounded but one, as IEEE 754 says. (Of a NaN only that it is one is kept.)
bool has_exact_kernel(const Step& step);

// Whether a call tells what is lost by giving one tensor for another, by an operator that a kernel can do for
// each element. Its third argument says whether that is all, or their mean or sum is wanted.
bool is_loss(const Step& step);

// The function of device/functions.cu that does such a call, and what it is given, in its order: values, or
// numbers.
struct FunctionCall {
  std::string_view function;
  std::vector<Argument> arguments;
};
FunctionCall function_call(const Step& step);

// A number exactly, as text, of the type that arithmetic is done in.
std::string literal(const c10::IValue& constant, std::string_view arithmetic);

// What a generated kernel does with one element. In its text `a0`, `a1`, … are the values of the inputs, and
// `t0`, `t1`, … those that the steps make.
class ElementSource {
 public:
  // The tensors tell types; `steps` are what each step makes. All must outlive this.
  ElementSource(const Expression& expression, at::TensorList inputs, at::TensorList steps)
      : expression_(expression), inputs_(inputs), steps_(steps) {}

  static std::string type(const at::Tensor& tensor);
  static std::string name(const Value& value);
  const at::Tensor& tensor(const Value& value) const;

  // "const auto t1 = as<Half>(fn::add<arithmetic_t<Half>>(t0, a1, …));"
  std::string step(std::size_t s) const;

 private:
  c10::ScalarType common_type(const Step& step) const;

  const Expression& expression_;
  at::TensorList inputs_, steps_;
};

}  // namespace nimble::kernels
