#include "nimble/engine/many_tensors.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "nimble/engine/distance.h"
#include "nimble/torch/outside_state.h"

namespace nimble {
namespace {

// As much as is looked at together, so that looking takes little memory.
constexpr std::size_t kBytesAtOnce = 64 << 20;

bool are_numbers(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && (tensor.is_floating_point() || tensor.is_complex());
}

bool look_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type() &&
         a.device() == b.device() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

at::Tensor bytes_of(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}).view(at::kByte);
}

// The largest magnitude in each of the tensors that `make` gives for a group of indices; only then does the
// host wait. A result that is not finite is left to the caller.
template <class Make>
void largest_of_groups(std::span<const at::Tensor> tensors, std::vector<double>& found, Make&& make) {
  using Kind = std::pair<c10::Device, at::ScalarType>;
  const auto order = [](const Kind& a, const Kind& b) {
    return std::pair(a.first.str(), a.second) < std::pair(b.first.str(), b.second);
  };
  std::map<Kind, std::vector<std::size_t>, decltype(order)> groups(order);
  std::map<Kind, std::size_t, decltype(order)> bytes(order);
  const auto look = [&](std::vector<std::size_t>& group) {
    if (group.empty()) return;
    const at::Tensor norms =
        at::stack(at::_foreach_norm(make(group), std::numeric_limits<double>::infinity()));
    const at::Tensor on_host = norms.to(at::kDouble).cpu();
    for (std::size_t i = 0; i < group.size(); ++i) found[group[i]] = on_host.const_data_ptr<double>()[i];
    group.clear();
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!are_numbers(tensors[i])) continue;
    if (tensors[i].is_complex()) {
      found[i] = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const Kind kind(tensors[i].device(), tensors[i].scalar_type());
    groups[kind].push_back(i);
    bytes[kind] += tensors[i].nbytes();
    if (bytes[kind] < kBytesAtOnce) continue;
    look(groups[kind]);
    bytes[kind] = 0;
  }
  for (auto& [kind, group] : groups) look(group);
}

std::vector<at::Tensor> chosen(std::span<const at::Tensor> tensors, const std::vector<std::size_t>& indices) {
  std::vector<at::Tensor> found;
  for (const std::size_t i : indices) found.push_back(tensors[i]);
  return found;
}

}  // namespace

bool all_same_bits(std::span<const at::Tensor> a, std::span<const at::Tensor> b) {
  if (a.size() != b.size()) return false;
  const at::NoGradGuard no_grad;
  std::map<std::string, std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> together;  // by device
  std::size_t bytes = 0;
  const auto same_until_now = [&] {
    bool same = true;
    for (const auto& [device, pair] : together) same &= at::equal(at::cat(pair.first), at::cat(pair.second));
    together.clear();
    bytes = 0;
    return same;
  };
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    if (!a[i].defined()) continue;
    const bool dense = a[i].is_non_overlapping_and_dense() && look_alike(a[i], b[i]);
    if (!dense || a[i].numel() == 0) {
      if (!same_bits(a[i], b[i])) return false;
      continue;
    }
    auto& [of_a, of_b] = together[a[i].device().str()];
    of_a.push_back(bytes_of(a[i]));
    of_b.push_back(bytes_of(b[i]));
    bytes += a[i].nbytes();
    if (bytes >= kBytesAtOnce && !same_until_now()) return false;
  }
  return same_until_now();
}

std::vector<double> distances(std::span<const at::Tensor> a, std::span<const at::Tensor> b) {
  const at::NoGradGuard no_grad;
  std::vector<double> found(a.size());
  largest_of_groups(a, found,
                    [&](const auto& group) { return at::_foreach_sub(chosen(a, group), chosen(b, group)); });
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(found[i])) found[i] = distance(a[i], b[i]).largest;
  }
  return found;
}

std::vector<double> magnitudes(std::span<const at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  std::vector<double> found(tensors.size());
  largest_of_groups(tensors, found, [&](const auto& group) { return chosen(tensors, group); });
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!std::isfinite(found[i])) found[i] = largest_value(tensors[i]);
  }
  return found;
}

}  // namespace nimble
