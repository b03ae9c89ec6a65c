#pragma once

#include <ATen/core/Tensor.h>

namespace nimble::kernels {

// Every operator that has an overload `out` writes there what it would return, into a tensor that the caller
// gives: of the same shape and type, but anywhere, also into a slice of something larger. Throws InvalidInput
// where it does not fit.
void expect_fits(const at::Tensor& out, at::IntArrayRef sizes, at::ScalarType dtype);

at::Tensor& copy_into(at::Tensor& out, const at::Tensor& result);

// The same for operators that take lists, one tensor of each for one result.
void expect_as_many(at::TensorList tensors, std::size_t results);
void copy_into(at::TensorList out, at::TensorList results);

// The overload `out` of an operator that can only make new tensors: it makes one and copies.
template <auto function>
struct Into;
template <class... Arguments, at::Tensor (*function)(Arguments...)>
struct Into<function> {
  static at::Tensor& call(Arguments... arguments, at::Tensor& out) {
    return copy_into(out, function(arguments...));
  }
};

}  // namespace nimble::kernels
