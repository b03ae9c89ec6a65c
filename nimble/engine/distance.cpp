#include "nimble/engine/distance.h"

#include <ATen/ATen.h>

#include <limits>

namespace nimble {
namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return (tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor).to(at::kDouble);
}

}  // namespace

Distance distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return {};
  const at::Tensor left = wide(a), right = wide(b);
  constexpr double kFar = std::numeric_limits<double>::infinity();
  const bool same_kinds = at::equal(left.isnan(), right.isnan()) &&
                          at::equal(left.isposinf(), right.isposinf()) &&
                          at::equal(left.isneginf(), right.isneginf());
  if (!same_kinds) return {kFar, kFar};
  const at::Tensor apart = (left - right).nan_to_num(0.0, 0.0, 0.0);
  return {apart.square().mean().sqrt().item<double>(), apart.abs().max().item<double>()};
}

double largest_value(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : wide(tensor).nan_to_num(0.0, 0.0, 0.0).abs().max().item<double>();
}

}  // namespace nimble
