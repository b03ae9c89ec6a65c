#include "nimble/engine/tolerance.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "nimble/torch/run_in_double.h"

namespace nimble {
namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return (tensor.is_complex() ? at::view_as_real(tensor) : tensor).to(at::kDouble);
}

// A value that is no number must be none in both.
double distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  const at::Tensor left = wide(a), right = wide(b);
  if (!at::equal(left.isfinite(), right.isfinite())) return std::numeric_limits<double>::infinity();
  return (left - right).nan_to_num(0.0, 0.0, 0.0).abs().max().item<double>();
}

double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : wide(tensor).nan_to_num(0.0, 0.0, 0.0).abs().max().item<double>();
}

// Where there is no reference to compare with, or no need of one.
double by_type(at::ScalarType type, bool coarse) {
  switch (type) {
    case at::kDouble:
    case at::kComplexDouble:
      return 1e-9;
    case at::kBFloat16:
      return 5e-2;
    case at::kHalf:
      return 1e-2;
    default:
      return coarse ? 5e-3 : 1e-4;
  }
}

}  // namespace

bool Tolerance::allows(std::size_t n, const at::Tensor& replayed, const at::Tensor& eager) const {
  const at::NoGradGuard no_grad;
  if (!eager.is_floating_point() && !eager.is_complex()) return false;
  const double magnitude = largest(eager);
  if (relative_) return distance(replayed, eager) <= *relative_ * magnitude;
  const at::ScalarType type = eager.scalar_type();
  const bool by_reference = (coarse_ || c10::isReducedFloatingType(type)) && n < reference_.size();
  if (!by_reference) return distance(replayed, eager) <= by_type(type, coarse_) * magnitude;
  constexpr double kTimes = 2, kLeast = 1e-5;
  return distance(replayed, reference_[n]) <= kTimes * distance(eager, reference_[n]) + kLeast * magnitude;
}

Tolerance tolerance_for(const Program& program, std::span<const at::Tensor> inputs,
                        std::optional<double> relative) {
  auto& settings = at::globalContext();
  const bool tf32 = program.device().is_cuda() && (settings.allowTF32CuDNN() || settings.allowTF32CuBLAS());
  const bool by_reference =
      tf32 || std::any_of(program.outputs.begin(), program.outputs.end(),
                          [](const Output& output) { return c10::isReducedFloatingType(output.ref.dtype); });
  if (relative || !by_reference) return {relative, tf32, {}};
  return {relative, tf32, run_in_double(program, inputs)};
}

}  // namespace nimble
