#include "nimble/engine/effects.h"

#include <ATen/ATen.h>

#include <algorithm>
namespace nimble {
namespace {

// In double precision, so that no difference is lost; what is no number counts as zero.
at::Tensor numbers(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor) : tensor;
  return real.to(at::kDouble).nan_to_num(0.0, 0.0, 0.0);
}

bool are_numbers(const at::Tensor& tensor) { return tensor.is_floating_point() || tensor.is_complex(); }

double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0.0 : numbers(tensor).abs().max().item<double>();
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0.0 : (numbers(a) - numbers(b)).abs().max().item<double>();
}

bool comparable(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

}  // namespace

Effects Effects::observe(const Tensors& results, const OutsideState& places,
                         std::span<const at::Tensor> except) {
  Effects effects;
  for (std::size_t i = 0; i < results.size(); ++i) effects.add("result " + std::to_string(i), results[i]);
  for (const at::Tensor& tensor : places.tensors()) {
    const bool left_out =
        std::any_of(except.begin(), except.end(), [&](const at::Tensor& t) { return t.is_alias_of(tensor); });
    if (!left_out) effects.add("a tensor that the function writes to", tensor);
  }
  for (const at::Generator& generator : places.generators()) {
    effects.add("the state of a random generator", state_of(generator));
  }
  return effects;
}

void Effects::add(std::string name, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode ordinary(false);
  values_.emplace_back(std::move(name), value.defined() ? value.detach().clone() : value);
}

std::optional<std::string> Effects::difference(const Effects& other, const std::optional<Spread>& spread,
                                               const std::optional<Tolerance>& tolerance) const {
  if (values_.size() != other.values_.size()) return "another number of results the next time";
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const auto& [name, a] = values_[i];
    const at::Tensor& b = other.values_[i].second;
    if (!a.defined() && !b.defined()) continue;
    if (a.defined() && b.defined()) {
      if (same_bits(a, b)) continue;
      const bool within = spread && spread->any() && comparable(a, b) && are_numbers(a) &&
                          distance(a, b) <= spread->allowed(i, std::max(largest(a), largest(b)));
      if (within) continue;
      if (tolerance && comparable(a, b) && tolerance->allows(i, a, b)) continue;
    }
    return name;
  }
  return std::nullopt;
}

Spread::Spread(Effects first) : first_(std::move(first)), widest_(first_.values_.size()) {}

void Spread::add(const Effects& another) {
  for (std::size_t i = 0; i < widest_.size(); ++i) {
    const at::Tensor& value = first_.values_[i].second;
    if (!value.defined() || !are_numbers(value)) continue;
    widest_[i] = std::max(widest_[i], distance(value, another.values_[i].second));
    if (widest_[i] > 0) relative_ = std::max(relative_, widest_[i] / std::max(largest(value), 1e-30));
  }
}

double Spread::allowed(std::size_t n, double magnitude) const {
  // A few runs do not show the widest spread there is, nor every value that varies. But a value that is
  // nothing but rounding (the gradient of a bias before a batch norm) must not excuse the others.
  constexpr double kMargin = 10, kMostForOthers = 1e-6;
  if (widest_[n] > 0) return kMargin * widest_[n];
  return kMargin * std::min(relative_, kMostForOthers) * magnitude;
}

Tensors replay_from(const OutsideState& before, Executable& executable, std::span<const at::Tensor> inputs) {
  before.restore();
  Tensors results = executable.replay(inputs);
  executable.wait();
  return results;
}

std::optional<Spread> measure_spread(c10::Device device, const std::function<Effects()>& run) {
  constexpr int kRuns = 6;
  if (!device.is_cuda() || at::globalContext().deterministicAlgorithms()) return std::nullopt;
  Spread spread(run());
  for (int i = 1; i < kRuns; ++i) spread.add(run());
  return spread;
}

}  // namespace nimble
