#pragma once

#include <ATen/core/Tensor.h>
#include <cublasLt.h>

namespace nimble::kernels {

// y = epilogue(x wᵀ + c + bias), where x is [rows, inner], w is [columns, inner], and y and c are
// [rows, columns], each with neighbours in a row beside each other and rows `*_step` elements apart.
struct MatrixProduct {
  std::int64_t rows, columns, inner;
  std::int64_t x_step, w_step, c_step, y_step;
  at::ScalarType dtype;
  bool allow_tf32;
  cublasLtEpilogue_t epilogue;
  std::int64_t candidate;  // which of cuBLASLt's proposals, from the one that it thinks best
};
struct MatrixPointers {
  const void* x;
  const void* w;
  const void* c;     // nullptr for none
  const void* bias;  // nullptr for none
  void* y;
};

// Runs on the current stream. Its workspace comes from PyTorch's allocator, so a memory plan knows it. Throws
// Error where there are fewer proposals than `candidate`.
void multiply(const MatrixProduct& product, const MatrixPointers& pointers);

}  // namespace nimble::kernels
