#include "nimble/torch/rewrites/cuda/spreading.h"

#include "nimble/torch/rewrites/cuda/sites.h"

namespace nimble {

std::optional<at::DimVector> shape_before_spreading(const TensorRef& made, TensorRef look) {
  const bool is_same = look.buffer == made.buffer && look.offset == made.offset && look.dtype == made.dtype &&
                       look.conjugate == made.conjugate && look.negative == made.negative;
  if (!is_same) return {};
  if (look.sizes == made.sizes && look.strides == made.strides) return made.sizes;
  for (std::size_t d = 0; d < look.sizes.size(); ++d) {
    if (look.strides[d] == 0) look.sizes[d] = 1;
  }
  const bool is_whole = look.numel() == made.numel() && is_contiguous(look) && is_contiguous(made);
  return is_whole ? std::optional(look.sizes) : std::nullopt;
}

}  // namespace nimble
