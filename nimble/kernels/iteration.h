#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

namespace nimble::kernels {

// One dimension that a kernel goes along: how far it goes and, by operand, how far apart its elements are.
struct Dimension {
  std::int64_t size;
  std::vector<std::int64_t> strides;
};

// The dimensions of `shape` as the operands see them, from the slowest to the fastest in memory of the last
// of them, with those that all operands step through evenly made one; at least one. Operands are broadcast;
// behind these dimensions they have `behind` more.
std::vector<Dimension> dimensions_of(at::IntArrayRef shape, at::TensorList operands, std::size_t behind = 0);

// All elements that a kernel goes over, as its operands see them. In its text `p0`, `p1`, … are the operands
// and `i0`, `i1`, … count along the dimensions.
class Iteration {
 public:
  Iteration(std::vector<Dimension> dimensions, at::TensorList operands)
      : dimensions_(std::move(dimensions)), operands_(operands.begin(), operands.end()) {}

  const Dimension& fastest() const { return dimensions_.back(); }
  std::size_t dimensions() const { return dimensions_.size(); }
  // One element for all along the fastest dimension.
  bool is_broadcast(std::size_t operand) const { return fastest().strides[operand] == 0; }

  // The most neighbours along the fastest dimension, at most `limit`, that one instruction loads or stores of
  // each operand, wherever they begin.
  std::int64_t vector(std::int64_t limit) const;

  // The type that positions are counted in.
  std::string_view index_type() const;
  // "const int i1 = rest % 12; rest /= 12; …" for the first `count` dimensions. Along the fastest of all
  // `rest` counts vectors.
  std::string indices(std::size_t count, std::int64_t vector) const;
  // "p2 + i0 * 768 + i1"
  std::string place(std::size_t operand) const;
  // "const float* p0, float* p1": the first `inputs` operands are only read.
  std::string parameters(std::size_t inputs) const;
  // What a kernel begins with.
  std::string waiting() const;

 private:
  std::vector<Dimension> dimensions_;
  std::vector<at::Tensor> operands_;
};

}  // namespace nimble::kernels
