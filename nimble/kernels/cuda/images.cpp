#include "nimble/kernels/cuda/images.h"

#include <ATen/ATen.h>

namespace nimble::kernels {

bool is_image_batch(const at::Tensor& x) {
  const auto type = x.scalar_type();
  const bool known_type = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  return x.dim() == 4 && known_type && x.numel() > 0;
}

c10::cuda::OptionalCUDAGuard on_device_of(const at::Tensor& x) {
  return c10::cuda::OptionalCUDAGuard(x.is_cuda() ? std::optional(x.device()) : std::nullopt);
}

at::Tensor empty_image_batch(const at::Tensor& x, at::IntArrayRef sizes) {
  return at::empty(sizes, x.options().memory_format(x.suggest_memory_format()));
}

std::optional<std::int64_t> pixel_step(const at::Tensor& x) {
  if (x.stride(1) != 1 && x.size(1) != 1) return {};
  std::int64_t step = 0, next = 0;
  for (const int dimension : {3, 2, 0}) {
    if (x.size(dimension) == 1) continue;
    if (step == 0) step = next = x.stride(dimension);
    if (x.stride(dimension) != next) return {};
    next *= x.size(dimension);
  }
  return step == 0 ? x.size(1) : step;
}

}  // namespace nimble::kernels
