#include "nimble/kernels/into.h"

#include <ATen/ATen.h>

#include "nimble/core/error.h"

namespace nimble::kernels {

void expect_fits(const at::Tensor& out, at::IntArrayRef sizes, at::ScalarType dtype) {
  if (out.sizes() == sizes && out.scalar_type() == dtype) return;
  throw InvalidInput(c10::str("[nimble::kernels] a result of shape ", sizes, " and type ", dtype,
                              " does not fit into a tensor of shape ", out.sizes(), " and type ",
                              out.scalar_type(), ": give one of the result's shape and type"));
}

at::Tensor& copy_into(at::Tensor& out, const at::Tensor& result) {
  expect_fits(out, result.sizes(), result.scalar_type());
  return out.copy_(result);
}

}  // namespace nimble::kernels
