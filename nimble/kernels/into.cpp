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

void expect_as_many(at::TensorList tensors, std::size_t results) {
  if (tensors.size() == results) return;
  throw InvalidInput(c10::str("[nimble::kernels] ", results, " results, and a list of ", tensors.size(),
                              " tensors for them: give one for each"));
}

void copy_into(at::TensorList out, at::TensorList results) {
  expect_as_many(out, results.size());
  for (std::size_t n = 0; n < out.size(); ++n) {
    at::Tensor place = out[n];
    copy_into(place, results[n]);
  }
}

}  // namespace nimble::kernels
