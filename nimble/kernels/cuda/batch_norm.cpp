#include "nimble/kernels/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "nimble/kernels/batch_norm_source.h"
#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/launch.h"

namespace nimble::kernels {
namespace {

// Numbers for each channel, in float32 whatever the images are.
bool are_numbers_of(const BatchNorm& norm, std::initializer_list<const at::Tensor*> all) {
  return std::ranges::all_of(all, [&](const at::Tensor* numbers) {
    return numbers->scalar_type() == at::kFloat && numbers->numel() == norm.channels &&
           numbers->is_contiguous();
  });
}

void* address_of(const std::optional<at::Tensor>& tensor) {
  return tensor ? kernels::address_of(*tensor) : nullptr;
}

void launch_all(std::span<const KernelSource> kernels, std::span<void* const> pointers) {
  for (const KernelSource& kernel : kernels) launch(kernel, pointers);
}

FourTensors batch_norm_training_cuda(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                     const std::optional<at::Tensor>& running_mean,
                                     const std::optional<at::Tensor>& running_variance, double momentum,
                                     double epsilon, const std::optional<at::Tensor>& residual,
                                     std::string_view activation) {
  const bool tracks = running_mean && running_variance;
  const auto norm = BatchNorm::of(x, residual ? at::TensorList(*residual) : at::TensorList(), activation);
  if (!norm || !are_numbers_of(*norm, {&weight, &bias}) ||
      (tracks && !are_numbers_of(*norm, {&*running_mean, &*running_variance}))) {
    return batch_norm_training(x, weight, bias, running_mean, running_variance, momentum, epsilon, residual,
                               activation);
  }
  const auto guard = on_device_of(x);
  const auto numbers = x.options().dtype(at::kFloat);
  const at::Tensor y = at::empty(x.sizes(), x.options()), mean = at::empty({norm->channels}, numbers),
                   inverse = at::empty({norm->channels}, numbers), room = at::empty(norm->room(), numbers);
  const std::array<void*, 10> pointers = {kernels::address_of(x),       address_of(residual),
                                          kernels::address_of(weight),  kernels::address_of(bias),
                                          address_of(running_mean),     address_of(running_variance),
                                          kernels::address_of(y),       kernels::address_of(mean),
                                          kernels::address_of(inverse), kernels::address_of(room)};
  launch_all(batch_norm_sources(*norm, momentum, epsilon, tracks, residual.has_value()), pointers);
  return {y, mean, inverse, room};
}

FourTensors batch_norm_training_backward_cuda(const at::Tensor& gradient, const at::Tensor& x,
                                              const at::Tensor& weight, const at::Tensor& bias,
                                              const at::Tensor& mean, const at::Tensor& inverse_deviation,
                                              std::string_view activation) {
  const auto norm = BatchNorm::of(x, {gradient}, activation);
  if (!norm || !are_numbers_of(*norm, {&weight, &bias, &mean, &inverse_deviation})) {
    return batch_norm_training_backward(gradient, x, weight, bias, mean, inverse_deviation, activation);
  }
  const auto guard = on_device_of(x);
  const auto numbers = x.options().dtype(at::kFloat);
  const at::Tensor x_gradient = at::empty(x.sizes(), x.options()),
                   weight_gradient = at::empty({norm->channels}, numbers),
                   bias_gradient = at::empty({norm->channels}, numbers),
                   room = at::empty(norm->room(), numbers);
  const std::array<void*, 10> pointers = {
      kernels::address_of(gradient),      kernels::address_of(x),
      kernels::address_of(weight),        kernels::address_of(bias),
      kernels::address_of(mean),          kernels::address_of(inverse_deviation),
      kernels::address_of(x_gradient),    kernels::address_of(weight_gradient),
      kernels::address_of(bias_gradient), kernels::address_of(room)};
  launch_all(batch_norm_backward_sources(*norm), pointers);
  return {x_gradient, weight_gradient, bias_gradient, room};
}

void register_all(torch::Library& library) {
  library.impl("batch_norm_training", batch_norm_training_cuda);
  library.impl("batch_norm_training_backward", batch_norm_training_backward_cuda);
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) { register_all(library); }

// Without memory they tell shapes, and which kernels they need.
TORCH_LIBRARY_IMPL(nimble, Meta, library) { register_all(library); }

}  // namespace
}  // namespace nimble::kernels
