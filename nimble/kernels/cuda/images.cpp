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

at::Tensor empty_image_batch(const at::Tensor& x, std::int64_t channels, std::int64_t height,
                             std::int64_t width) {
  return at::empty({x.size(0), channels, height, width},
                   x.options().memory_format(x.suggest_memory_format()));
}

}  // namespace nimble::kernels
