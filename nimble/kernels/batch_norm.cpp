#include "nimble/kernels/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "nimble/kernels/activation.h"
#include "nimble/kernels/batch_norm_source.h"

namespace nimble::kernels {
namespace {

at::Tensor room_for(const at::Tensor& x) {
  const auto norm = BatchNorm::of(x, {}, "none");
  return at::empty(norm ? norm->room() : std::vector<std::int64_t>{1, 1, 2}, x.options().dtype(at::kFloat));
}

// [channels], to be spread over images and pixels.
at::Tensor by_channel(const at::Tensor& numbers, const at::Tensor& x) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = x.size(1);
  return numbers.view(sizes);
}

// 1 where the activation lets a gradient through.
at::Tensor passing(const at::Tensor& before, std::string_view activation) {
  return activation == "relu" ? before.le(0).logical_not_()
                              : before.le(0).logical_or_(before.ge(6)).logical_not_();
}

TORCH_LIBRARY_IMPL(nimble, CompositeExplicitAutograd, library) {
  library.impl("batch_norm_training", batch_norm_training);
  library.impl("batch_norm_training_backward", batch_norm_training_backward);
}

}  // namespace

FourTensors batch_norm_training(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                const std::optional<at::Tensor>& running_mean,
                                const std::optional<at::Tensor>& running_variance, double momentum,
                                double epsilon, const std::optional<at::Tensor>& residual,
                                std::string_view activation) {
  auto [y, mean, inverse] = at::native_batch_norm(x, weight, bias, running_mean, running_variance,
                                                  /*training=*/true, momentum, epsilon);
  at::Tensor room = room_for(x);
  if (residual) y.add_(*residual);
  activate(y, activation);
  return {std::move(y), std::move(mean), std::move(inverse), std::move(room)};
}

FourTensors batch_norm_training_backward(const at::Tensor& gradient, const at::Tensor& x,
                                         const at::Tensor& weight, const at::Tensor& bias,
                                         const at::Tensor& mean, const at::Tensor& inverse_deviation,
                                         std::string_view activation) {
  at::Tensor arriving = gradient;
  if (activation != "none") {
    const at::Tensor before = (x.to(at::kFloat) - by_channel(mean, x))
                                  .mul_(by_channel(inverse_deviation * weight, x))
                                  .add_(by_channel(bias, x));
    arriving = gradient * passing(before, activation);
  }
  constexpr double kUnused = 0;  // the deviation has it already
  auto [x_gradient, weight_gradient, bias_gradient] = at::native_batch_norm_backward(
      arriving, x, weight, {}, {}, mean, inverse_deviation, /*train=*/true, kUnused, {true, true, true});
  return {std::move(x_gradient), std::move(weight_gradient), std::move(bias_gradient), room_for(x)};
}

}  // namespace nimble::kernels
