#include "nimble/engine/effects.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "nimble/engine/device_load.h"
#include "nimble/engine/many_tensors.h"

namespace nimble {
namespace {

bool comparable(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

bool are_numbers(const at::Tensor& tensor) { return tensor.is_floating_point() || tensor.is_complex(); }

std::string relative(double apart, double magnitude) {
  std::ostringstream text;
  text << std::setprecision(2) << apart / std::max(magnitude, 1e-30);
  return text.str();
}

}  // namespace

Effects Effects::observe(const Tensors& results, const OutsideState& places,
                         std::span<const at::Tensor> except, const Seen& seen) {
  Effects effects;
  for (std::size_t i = 0; i < results.size(); ++i) effects.add("result " + std::to_string(i), results[i]);
  for (const at::Tensor& tensor : places.tensors()) {
    const bool left_out =
        std::any_of(except.begin(), except.end(), [&](const at::Tensor& t) { return t.is_alias_of(tensor); });
    if (!left_out) effects.add("a tensor that the function writes to", seen(tensor));
  }
  for (const at::Generator& generator : places.generators()) {
    effects.add("the state of a random generator", state_of(generator));
  }
  return effects;
}

void Effects::add(std::string name, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode ordinary(false);
  names_.push_back(std::move(name));
  values_.push_back(value.defined() ? value.detach().clone() : value);
}

std::optional<Effects::Difference> Effects::difference(const Effects& other,
                                                       const std::optional<Spread>& spread,
                                                       const std::optional<Tolerance>& tolerance) const {
  if (values_.size() != other.values_.size()) return Difference{"another number of results the next time"};
  if (all_same_bits(values_, other.values_)) return std::nullopt;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (!comparable(values_[i], other.values_[i])) return Difference{names_[i]};
  }
  const bool varies = spread && spread->any();
  const std::vector<double> apart = varies ? distances(values_, other.values_) : std::vector<double>{};
  const std::vector<double> magnitude = varies ? magnitudes(values_) : std::vector<double>{};
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (!values_[i].defined()) continue;
    const bool within = varies && are_numbers(values_[i]) && apart[i] <= spread->allowed(i, magnitude[i]);
    if (within || same_bits(values_[i], other.values_[i])) continue;
    if (!tolerance) {
      if (!varies || !are_numbers(values_[i])) return Difference{names_[i]};
      return Difference{names_[i], "by " + relative(apart[i], magnitude[i]) + " of the largest of " +
                                       std::to_string(values_[i].numel()) +
                                       " values, where one replay differs from another by up to " +
                                       relative(spread->widest(i), magnitude[i])};
    }
    if (auto excess = tolerance->excess(i, values_[i], other.values_[i]))
      return Difference{names_[i], *std::move(excess)};
  }
  return std::nullopt;
}

Spread::Spread(Effects first)
    : first_(std::move(first)), magnitude_(magnitudes(first_.values_)), widest_(first_.values_.size()) {}

void Spread::add(const Effects& another) {
  if (all_same_bits(first_.values_, another.values_)) return;
  const std::vector<double> apart = distances(first_.values_, another.values_);
  for (std::size_t i = 0; i < widest_.size(); ++i) {
    widest_[i] = std::max(widest_[i], apart[i]);
    if (widest_[i] > 0) relative_ = std::max(relative_, widest_[i] / std::max(magnitude_[i], 1e-30));
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

namespace {

void widen(Spread& spread, int runs, c10::Device device, const std::function<Effects()>& run) {
  for (int i = 0; i < runs / 2; ++i) spread.add(run());
  const DeviceLoad load(device);
  for (int i = runs / 2; i < runs; ++i) spread.add(run());
}

constexpr int kFirstRuns = 6;

}  // namespace

std::optional<Spread> measure_spread(c10::Device device, const Effects& first,
                                     const std::function<Effects()>& run) {
  if (!device.is_cuda() || at::globalContext().deterministicAlgorithms()) return std::nullopt;
  Spread spread(first);
  widen(spread, kFirstRuns - 1, device, run);
  return spread;
}

std::optional<Effects::Difference> unexplained_difference(const Effects& one, const Effects& other,
                                                          std::optional<Spread>& spread, c10::Device device,
                                                          const std::function<Effects()>& run,
                                                          const std::optional<Tolerance>& tolerance) {
  constexpr int kMostAtOnce = 48;
  auto differs = one.difference(other, spread, tolerance);
  for (int more = 2 * kFirstRuns; differs && spread && more <= kMostAtOnce; more *= 2) {
    widen(*spread, more, device, run);
    differs = one.difference(other, spread, tolerance);
  }
  return differs;
}

}  // namespace nimble
