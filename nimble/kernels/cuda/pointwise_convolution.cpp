// A convolution with a filter of one pixel over neighbouring channels is a product of matrices: pixels by
// channels.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <array>

#include "nimble/kernels/activation.h"
#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/matrix_product.h"
#include "nimble/kernels/into.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

// cuBLASLt's own version of an activation and a bias, if it has one. Its gelu is quick, and its error lies
// below the rounding of half precision and of TF32, but above that of float32.
std::optional<cublasLtEpilogue_t> epilogue(std::string_view activation, bool bias, bool exact) {
  if (activation == "none") return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (activation == "relu") return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (activation == "gelu_tanh" && !exact) return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return {};
}

bool is_product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                const std::optional<at::Tensor>& residual) {
  const auto same_type = [&](const at::Tensor& tensor) { return tensor.scalar_type() == x.scalar_type(); };
  const bool one_type =
      same_type(weight) && (!bias || same_type(*bias)) && (!residual || same_type(*residual));
  const bool one_pixel = weight.dim() == 4 && weight.size(2) == 1 && weight.size(3) == 1 &&
                         weight.size(1) == x.size(1) && (weight.stride(1) == 1 || weight.size(1) == 1);
  const bool whole_bias = !bias || bias->is_contiguous();
  return one_type && one_pixel && whole_bias && is_image_batch(x) && pixel_step(x);
}

std::array<std::int64_t, 4> result_sizes(const at::Tensor& x, const at::Tensor& weight) {
  return {x.size(0), weight.size(0), x.size(2), x.size(3)};
}

// What is added, as rows of a matrix: broadcast or laid out otherwise, it is brought into such a layout
// first.
at::Tensor as_rows(const at::Tensor& residual, at::IntArrayRef sizes) {
  if (residual.sizes() == sizes && pixel_step(residual)) return residual;
  return residual.expand(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor pointwise_convolution_cuda(const at::Tensor& x, const at::Tensor& weight,
                                      const std::optional<at::Tensor>& bias,
                                      const std::optional<at::Tensor>& residual, std::string_view activation,
                                      std::int64_t candidate);

at::Tensor& pointwise_convolution_out_cuda(const at::Tensor& x, const at::Tensor& weight,
                                           const std::optional<at::Tensor>& bias,
                                           const std::optional<at::Tensor>& residual,
                                           std::string_view activation, std::int64_t candidate,
                                           at::Tensor& out) {
  if (!is_product(x, weight, bias, residual)) {
    return Into<pointwise_convolution>::call(x, weight, bias, residual, activation, candidate, out);
  }
  const auto y_step = out.dim() == 4 ? pixel_step(out) : std::nullopt;
  if (!y_step) {
    return Into<pointwise_convolution_cuda>::call(x, weight, bias, residual, activation, candidate, out);
  }
  const c10::cuda::CUDAGuard guard(x.device());
  const auto sizes = result_sizes(x, weight);
  expect_fits(out, sizes, x.scalar_type());
  const auto added = residual ? std::optional(as_rows(*residual, sizes)) : std::nullopt;
  const bool allow_tf32 = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
  const bool exact = x.scalar_type() == at::kFloat && !allow_tf32;
  const auto fused = epilogue(activation, bias.has_value(), exact);
  const MatrixProduct product{.rows = x.size(0) * x.size(2) * x.size(3),
                              .columns = weight.size(0),
                              .inner = weight.size(1),
                              .x_step = *pixel_step(x),
                              .w_step = weight.size(1) == 1 ? 1 : weight.stride(0),
                              .c_step = added ? *pixel_step(*added) : *y_step,
                              .y_step = *y_step,
                              .dtype = x.scalar_type(),
                              .allow_tf32 = allow_tf32,
                              .epilogue = fused.value_or(*epilogue("none", bias.has_value(), exact)),
                              .candidate = candidate};
  multiply(product, {.x = x.const_data_ptr(),
                     .w = weight.const_data_ptr(),
                     .c = added ? added->const_data_ptr() : nullptr,
                     .bias = bias ? bias->const_data_ptr() : nullptr,
                     .y = out.mutable_data_ptr()});
  if (!fused) activate(out, activation);
  return out;
}

at::Tensor pointwise_convolution_cuda(const at::Tensor& x, const at::Tensor& weight,
                                      const std::optional<at::Tensor>& bias,
                                      const std::optional<at::Tensor>& residual, std::string_view activation,
                                      std::int64_t candidate) {
  if (!is_product(x, weight, bias, residual)) {
    return pointwise_convolution(x, weight, bias, residual, activation, candidate);
  }
  at::Tensor y =
      at::empty(result_sizes(x, weight), x.options().memory_format(at::MemoryFormat::ChannelsLast));
  return pointwise_convolution_out_cuda(x, weight, bias, residual, activation, candidate, y);
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) {
  library.impl("pointwise_convolution", pointwise_convolution_cuda);
  library.impl("pointwise_convolution.out", pointwise_convolution_out_cuda);
}

}  // namespace
}  // namespace nimble::kernels
