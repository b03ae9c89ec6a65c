// A convolution and what follows it in one call of cuDNN's, into a tensor of its own or a slice of a larger
// one.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <array>

#include "nimble/kernels/activation.h"
#include "nimble/kernels/cuda/cudnn/convolution_plan.h"
#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/into.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

cudnnDataType_t data_type(at::ScalarType dtype) {
  return dtype == at::kHalf       ? CUDNN_DATA_HALF
         : dtype == at::kBFloat16 ? CUDNN_DATA_BFLOAT16
                                  : CUDNN_DATA_FLOAT;
}

// One number stands for both directions.
std::vector<std::int64_t> pair(at::IntArrayRef numbers) { return {numbers.front(), numbers.back()}; }

// A tensor whose channels are neighbours. Strides of dimensions of one element, which may be anything, are
// made what they would be otherwise: cuDNN looks at them.
cudnn::Layout layout_of(const at::Tensor& tensor) {
  constexpr std::int64_t kWidestLoad = 16;  // bytes
  cudnn::Layout layout{tensor.sizes().vec(), tensor.strides().vec(), kWidestLoad};
  std::int64_t next = 1;
  for (const std::size_t dimension : {1, 3, 2, 0}) {
    if (layout.sizes[dimension] == 1) layout.strides[dimension] = next;
    next = layout.strides[dimension] * layout.sizes[dimension];
  }
  while (reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % layout.alignment != 0) {
    layout.alignment /= 2;
  }
  return layout;
}

bool fits_cudnn(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                const std::optional<at::Tensor>& residual) {
  const auto same_type = [&](const at::Tensor& tensor) { return tensor.scalar_type() == x.scalar_type(); };
  return is_image_batch(x) && weight.dim() == 4 && same_type(weight) && (!bias || same_type(*bias)) &&
         (!residual || same_type(*residual)) && at::globalContext().userEnabledCuDNN();
}

std::array<std::int64_t, 4> result_sizes(const at::Tensor& x, const at::Tensor& weight,
                                         at::IntArrayRef stride, at::IntArrayRef padding,
                                         at::IntArrayRef dilation) {
  const auto steps = [&](std::size_t d, std::int64_t size, std::int64_t filter) {
    return (size + 2 * pair(padding)[d] - pair(dilation)[d] * (filter - 1) - 1) / pair(stride)[d] + 1;
  };
  return {x.size(0), weight.size(0), steps(0, x.size(2), weight.size(2)),
          steps(1, x.size(3), weight.size(3))};
}

// False where cuDNN has no way to do it; nothing was written then.
bool run(const at::Tensor& given_x, const at::Tensor& given_weight, const std::optional<at::Tensor>& bias,
         const std::optional<at::Tensor>& residual, at::IntArrayRef stride, at::IntArrayRef padding,
         at::IntArrayRef dilation, std::string_view activation, std::int64_t candidate, at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(given_x.device());
  const at::Tensor x = given_x.contiguous(kChannelsLast), weight = given_weight.contiguous(kChannelsLast);
  std::optional<at::Tensor> added, shift;
  if (residual) added = residual->expand(out.sizes()).contiguous(kChannelsLast);
  if (bias) shift = bias->contiguous().view({1, bias->numel(), 1, 1});
  const bool allow_tf32 = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
  // cuDNN's gelu by tanh is quick, and errs by more than a float rounds: only where the product rounds more.
  const bool is_coarse = x.scalar_type() != at::kFloat || allow_tf32;
  const bool fused = cudnn::has_activation(activation) && (is_coarse || activation != "gelu_tanh");
  cudnn::Convolution convolution{.x = layout_of(x),
                                 .weight = layout_of(weight),
                                 .y = layout_of(out),
                                 .residual = {},
                                 .bias = {},
                                 .stride = pair(stride),
                                 .padding = pair(padding),
                                 .dilation = pair(dilation),
                                 .type = data_type(x.scalar_type()),
                                 .allow_tf32 = allow_tf32,
                                 .deterministic = at::globalContext().deterministicCuDNN() ||
                                                  at::globalContext().deterministicAlgorithms(),
                                 .activation = fused ? std::string(activation) : "none"};
  if (added) convolution.residual = layout_of(*added);
  if (shift) convolution.bias = layout_of(*shift);
  const bool done = cudnn::convolve(convolution,
                                    {.x = x.const_data_ptr(),
                                     .weight = weight.const_data_ptr(),
                                     .residual = added ? added->const_data_ptr() : nullptr,
                                     .bias = shift ? shift->const_data_ptr() : nullptr,
                                     .y = out.mutable_data_ptr()},
                                    candidate);
  if (done && !fused) activate(out, activation);
  return done;
}

at::Tensor fused_convolution_cuda(const at::Tensor& x, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias,
                                  const std::optional<at::Tensor>& residual, at::IntArrayRef stride,
                                  at::IntArrayRef padding, at::IntArrayRef dilation, std::int64_t groups,
                                  std::string_view activation, std::int64_t candidate) {
  if (fits_cudnn(x, weight, bias, residual)) {
    at::Tensor y = at::empty(result_sizes(x, weight, stride, padding, dilation),
                             x.options().memory_format(kChannelsLast));
    if (run(x, weight, bias, residual, stride, padding, dilation, activation, candidate, y)) return y;
  }
  return fused_convolution(x, weight, bias, residual, stride, padding, dilation, groups, activation,
                           candidate);
}

at::Tensor& fused_convolution_out_cuda(const at::Tensor& x, const at::Tensor& weight,
                                       const std::optional<at::Tensor>& bias,
                                       const std::optional<at::Tensor>& residual, at::IntArrayRef stride,
                                       at::IntArrayRef padding, at::IntArrayRef dilation, std::int64_t groups,
                                       std::string_view activation, std::int64_t candidate, at::Tensor& out) {
  if (fits_cudnn(x, weight, bias, residual) && out.dim() == 4 && pixel_step(out)) {
    expect_fits(out, result_sizes(x, weight, stride, padding, dilation), x.scalar_type());
    if (run(x, weight, bias, residual, stride, padding, dilation, activation, candidate, out)) return out;
  }
  // Not into this slice.
  return Into<fused_convolution_cuda>::call(x, weight, bias, residual, stride, padding, dilation, groups,
                                            activation, candidate, out);
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) {
  library.impl("fused_convolution", fused_convolution_cuda);
  library.impl("fused_convolution.out", fused_convolution_out_cuda);
}

}  // namespace
}  // namespace nimble::kernels
