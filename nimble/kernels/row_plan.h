#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "nimble/kernels/expression.h"

namespace nimble::kernels {

// How one kernel goes over the rows of an expression. Every step makes rows, of the same shape as all others,
// or one number for each row: a reduction does, and what is computed of its numbers alone. Elements are
// computed in passes. A step over rows ends one: whatever needs its result belongs to the next.
//
//   x ── pow ──▶ mean ── add, rsqrt ──▶ mul(x, …)
//      pass 0       numbers of pass 1      pass 1
class RowPlan {
 public:
  // None where a step does not fit into one: it mixes other shapes, or goes over other dimensions.
  static std::optional<RowPlan> of(const Expression& expression, at::TensorList inputs, at::TensorList steps);

  at::IntArrayRef shape_of_rows() const { return at::IntArrayRef(shape_).slice(0, shape_.size() - along_); }
  at::IntArrayRef shape_of_row() const { return at::IntArrayRef(shape_).slice(shape_.size() - along_); }
  std::int64_t rows() const { return c10::multiply_integers(shape_of_rows()); }
  std::int64_t columns() const { return c10::multiply_integers(shape_of_row()); }

  bool makes_numbers(std::size_t step) const { return forms_[step] != Form::kRows; }
  // The pass that a step's result belongs to: numbers are known before it. A step over rows looks at what the
  // pass before has computed.
  std::size_t pass(std::size_t step) const { return passes_[step]; }
  // For one that makes rows, the pass in which it is computed: as late as all that need it allow, so that
  // registers need not hold it.
  std::size_t computed_in(std::size_t step) const { return computed_in_[step]; }
  std::size_t last_pass() const;

  // The tensors with a dimension of one element for each that their steps have lost of the rows, so that they
  // broadcast as they should.
  at::Tensor aligned_input(std::size_t input, const at::Tensor& tensor) const;
  at::Tensor aligned_result(std::size_t step, const at::Tensor& tensor) const;

 private:
  // Rows; numbers with the dimensions of a row kept as ones; numbers without them.
  enum class Form { kRows, kKept, kDropped };

  std::optional<Form> form_of(at::IntArrayRef sizes) const;
  bool find_shape(const Expression& expression, at::TensorList inputs, at::TensorList steps);
  bool find_forms(const Expression& expression, at::TensorList inputs, at::TensorList steps);
  void find_passes(const Expression& expression);
  at::Tensor with_row_dimensions(const at::Tensor& tensor) const;

  at::DimVector shape_;
  std::size_t along_ = 0;  // how many of its last dimensions make a row
  std::vector<Form> forms_;
  std::vector<bool> input_lacks_row_;
  std::vector<std::size_t> passes_, computed_in_;
};

}  // namespace nimble::kernels
