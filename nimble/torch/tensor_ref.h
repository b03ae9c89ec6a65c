#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nimble/core/ids.h"

namespace nimble {

// How a task names a tensor: a buffer and how to look at it. Views of one storage are different refs of one
// buffer.
struct TensorRef {
  BufferId buffer;
  at::DimVector sizes;
  at::DimVector strides;
  std::int64_t offset = 0;  // in elements
  at::ScalarType dtype = at::kFloat;
  bool conjugate = false;
  bool negative = false;
  bool requires_grad = false;  // some kernels look at it

  std::int64_t numel() const { return c10::multiply_integers(sizes); }

  friend bool operator==(const TensorRef&, const TensorRef&) = default;
};

// The bytes of the buffer that lie between the first and the last element of the ref.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};
ByteRange byte_range(const TensorRef& ref);

// Each byte between its first and its last is one of its elements'.
bool is_dense(const TensorRef& ref);

// True unless it is certain that no byte belongs to both refs of the same buffer.
bool may_overlap(const TensorRef& a, const TensorRef& b);

// Who writes to all of `over` leaves nothing of what was in `under`, which is of the same buffer.
bool covers(const TensorRef& over, const TensorRef& under);

// A matrix, looked at by columns.
TensorRef transposed(TensorRef matrix);

// The same sizes, strides and type, wherever the two lie.
bool same_form(const TensorRef& a, const TensorRef& b);

// What `tensor` looks like as a ref of `buffer`.
TensorRef describe(const at::Tensor& tensor, BufferId buffer);

// A tensor that looks at `storage` as `ref` says, unknown to autograd.
at::Tensor materialize(const TensorRef& ref, const c10::Storage& storage);

// All bytes of a storage, whatever views of it there are.
at::Tensor all_bytes_of(const c10::Storage& storage);

// One that has no memory, to ask what would become of it.
at::Tensor without_memory(const TensorRef& ref);

// "f32[1, 64, 56, 56]" with strides only where they are not contiguous.
std::string to_string(const TensorRef& ref);

}  // namespace nimble
