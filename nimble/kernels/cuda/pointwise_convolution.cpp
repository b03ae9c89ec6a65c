// A convolution with a filter of one pixel over neighbouring channels is a product of matrices: pixels by
// channels.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "nimble/kernels/activation.h"
#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/matrix_product.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

// How far apart pixels lie, where all lie evenly apart and their channels are neighbours.
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

// cuBLASLt's own version of an activation and a bias, if it has one.
std::optional<cublasLtEpilogue_t> epilogue(std::string_view activation, bool bias) {
  if (activation == "none") return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (activation == "relu") return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (activation == "gelu_tanh") return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return {};
}

at::Tensor pointwise_convolution_cuda(const at::Tensor& x, const at::Tensor& weight,
                                      const std::optional<at::Tensor>& bias,
                                      const std::optional<at::Tensor>& residual, std::string_view activation,
                                      std::int64_t candidate) {
  const auto same_type = [&](const at::Tensor& tensor) { return tensor.scalar_type() == x.scalar_type(); };
  const bool one_type =
      same_type(weight) && (!bias || same_type(*bias)) && (!residual || same_type(*residual));
  const bool one_pixel = weight.dim() == 4 && weight.size(2) == 1 && weight.size(3) == 1 &&
                         weight.size(1) == x.size(1) && (weight.stride(1) == 1 || weight.size(1) == 1);
  const bool whole_bias = !bias || bias->is_contiguous();
  const auto x_step = is_image_batch(x) ? pixel_step(x) : std::nullopt;
  if (!one_type || !one_pixel || !whole_bias || !x_step) {
    return pointwise_convolution(x, weight, bias, residual, activation, candidate);
  }
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty({x.size(0), weight.size(0), x.size(2), x.size(3)},
                           x.options().memory_format(at::MemoryFormat::ChannelsLast));
  // Broadcast or laid out otherwise, what is added is brought into the result's layout first.
  const auto added = residual
                         ? std::optional(residual->expand_as(y).contiguous(at::MemoryFormat::ChannelsLast))
                         : std::nullopt;
  const auto fused = epilogue(activation, bias.has_value());
  const MatrixProduct product{.rows = x.size(0) * x.size(2) * x.size(3),
                              .columns = weight.size(0),
                              .inner = weight.size(1),
                              .x_step = *x_step,
                              .w_step = weight.size(1) == 1 ? 1 : weight.stride(0),
                              .c_step = weight.size(0),
                              .y_step = weight.size(0),
                              .dtype = x.scalar_type(),
                              .allow_tf32 = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV),
                              .epilogue = fused.value_or(*epilogue("none", bias.has_value())),
                              .candidate = candidate};
  multiply(product, {.x = x.const_data_ptr(),
                     .w = weight.const_data_ptr(),
                     .c = added ? added->const_data_ptr() : nullptr,
                     .bias = bias ? bias->const_data_ptr() : nullptr,
                     .y = y.mutable_data_ptr()});
  return fused ? y : activated(y, activation);
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) {
  library.impl("pointwise_convolution", pointwise_convolution_cuda);
}

}  // namespace
}  // namespace nimble::kernels
