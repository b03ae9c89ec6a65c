#include "nimble/torch/tensor_ref.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

namespace nimble {

ByteRange byte_range(const TensorRef& ref) {
  std::int64_t first = ref.offset, last = ref.offset;
  for (std::size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.sizes[d] == 0) return {};
    const std::int64_t reach = (ref.sizes[d] - 1) * ref.strides[d];
    (reach < 0 ? first : last) += reach;
  }
  const auto item = static_cast<std::int64_t>(c10::elementSize(ref.dtype));
  return {static_cast<std::uint64_t>(first * item), static_cast<std::uint64_t>((last + 1) * item)};
}

namespace {

// Two slices of one strided tensor that differ along a single dimension, such as x[:, :4] and x[:, 4:]: their
// byte ranges interleave, yet they share nothing if the slices do not meet along that dimension.
bool are_disjoint_slices(const TensorRef& a, const TensorRef& b) {
  if (a.dtype != b.dtype || a.strides != b.strides) return false;
  std::int64_t gap = b.offset - a.offset;
  const TensorRef& low = gap >= 0 ? a : b;
  const TensorRef& high = gap >= 0 ? b : a;
  gap = std::abs(gap);
  for (std::size_t d = 0; d < a.sizes.size(); ++d) {
    const std::int64_t stride = a.strides[d];
    if (stride <= 0 || gap % stride != 0) continue;
    const std::int64_t start =
        gap / stride;  // where the high slice starts along d, if d is where they differ
    if (start < low.sizes[d]) continue;
    // Every other dimension must stay within one step of d or jump over the whole extent of both slices, so
    // that equal addresses would mean equal indices along d.
    const std::int64_t extent = (start + high.sizes[d]) * stride;
    std::int64_t inner = 0;
    bool separable = true;
    for (std::size_t e = 0; e < a.sizes.size(); ++e) {
      if (e == d) continue;
      const std::int64_t size = std::max(a.sizes[e], b.sizes[e]);
      if (size <= 1) continue;
      if (a.strides[e] < stride) {
        inner += (size - 1) * a.strides[e];
      } else if (a.strides[e] % stride != 0 || a.strides[e] < extent) {
        separable = false;
      }
    }
    if (separable && inner < stride) return true;
  }
  return false;
}

const char* short_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kLong:
      return "i64";
    case at::kInt:
      return "i32";
    case at::kShort:
      return "i16";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "u8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

}  // namespace

bool may_overlap(const TensorRef& a, const TensorRef& b) {
  const ByteRange ra = byte_range(a), rb = byte_range(b);
  if (ra.empty() || rb.empty() || !ra.overlaps(rb)) return false;
  return !are_disjoint_slices(a, b);
}

bool is_dense(const TensorRef& ref) {
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride and size
  for (std::size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.sizes[d] != 1) steps.emplace_back(ref.strides[d], ref.sizes[d]);
  }
  std::ranges::sort(steps);
  std::int64_t elements = 1;
  return std::ranges::all_of(
      steps, [&](const auto& step) { return step.first == std::exchange(elements, elements * step.second); });
}

bool covers(const TensorRef& over, const TensorRef& under) {
  const ByteRange a = byte_range(over), b = byte_range(under);
  if (a.empty() || b.empty()) return false;
  if (is_dense(over)) return a.begin <= b.begin && b.end <= a.end;
  return over.sizes == under.sizes && over.strides == under.strides && over.offset == under.offset &&
         c10::elementSize(over.dtype) == c10::elementSize(under.dtype);
}

TensorRef transposed(TensorRef matrix) {
  std::swap(matrix.sizes[0], matrix.sizes[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  return matrix;
}

bool same_form(const TensorRef& a, const TensorRef& b) {
  return a.sizes == b.sizes && a.strides == b.strides && a.dtype == b.dtype;
}

TensorRef describe(const at::Tensor& tensor, BufferId buffer) {
  return {.buffer = buffer,
          .sizes = at::DimVector(tensor.sizes()),
          .strides = at::DimVector(tensor.strides()),
          .offset = tensor.storage_offset(),
          .dtype = tensor.scalar_type(),
          .conjugate = tensor.is_conj(),
          .negative = tensor.is_neg(),
          .requires_grad = tensor.requires_grad()};
}

at::Tensor materialize(const TensorRef& ref, const c10::Storage& storage) {
  const auto backend = storage.device().is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(backend), c10::scalarTypeToTypeMeta(ref.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(ref.sizes, ref.strides, ref.offset);
  if (ref.conjugate) tensor._set_conj(true);
  if (ref.negative) tensor._set_neg(true);
  if (ref.requires_grad && !tensor.is_inference()) tensor.set_requires_grad(true);
  return tensor;
}

at::Tensor all_bytes_of(const c10::Storage& storage) {
  const TensorRef whole{.buffer = {},
                        .sizes = {static_cast<std::int64_t>(storage.nbytes())},
                        .strides = {1},
                        .dtype = at::kByte};
  return materialize(whole, storage);
}

at::Tensor without_memory(const TensorRef& ref) {
  const auto elements = static_cast<std::int64_t>(byte_range(ref).end / c10::elementSize(ref.dtype));
  return at::empty({elements}, at::TensorOptions(at::kMeta).dtype(ref.dtype))
      .as_strided(ref.sizes, ref.strides, ref.offset);
}

std::string to_string(const TensorRef& ref) {
  std::ostringstream text;
  text << short_name(ref.dtype) << '[';
  for (std::size_t d = 0; d < ref.sizes.size(); ++d) text << (d ? ", " : "") << ref.sizes[d];
  text << ']';
  std::int64_t expected = 1;
  bool contiguous = true;
  for (std::size_t d = ref.sizes.size(); d-- > 0;) {
    contiguous &= ref.sizes[d] == 1 || ref.strides[d] == expected;
    expected *= ref.sizes[d];
  }
  if (!contiguous) {
    text << " strides [";
    for (std::size_t d = 0; d < ref.strides.size(); ++d) text << (d ? ", " : "") << ref.strides[d];
    text << ']';
  }
  if (ref.offset) text << " from " << ref.offset;
  return text.str();
}

}  // namespace nimble
