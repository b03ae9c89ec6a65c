#include "nimble/engine/tolerance.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "nimble/engine/distance.h"
#include "nimble/engine/usual_errors.h"
#include "nimble/torch/tf32.h"

namespace nimble {
namespace {

// Two digits of a quotient: "1.3e-04".
std::string part(double value, double of) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", of > 0 ? value / of : value);
  return text;
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

std::optional<std::string> too_large(const char* what, double error, double eagers, double times,
                                     double magnitude) {
  constexpr double kLeast = 1e-5;
  const double allowed = times * eagers + kLeast * magnitude;
  if (error <= allowed) return std::nullopt;
  return std::string(what) + " is " + part(error, magnitude) + " of its largest value, eager's " +
         part(eagers, magnitude) + ", allowed " + part(allowed, magnitude);
}

// The largest of many errors is a matter of luck, twice as large at times where all in all they are not.
constexpr double kTimes = 2, kTimesLargest = 4;

std::optional<std::string> mean_too_large(const Distance& ours, const Distance& eagers, double magnitude) {
  return too_large("its mean error", ours.mean, eagers.mean, kTimes, magnitude);
}

std::optional<std::string> too_far(const Distance& ours, const Distance& eagers, double magnitude) {
  if (auto mean = mean_too_large(ours, eagers, magnitude)) return mean;
  return too_large("its largest error", ours.largest, eagers.largest, kTimesLargest, magnitude);
}

}  // namespace

at::Tensor Tolerance::reference(std::size_t n) const {
  if (!known_reference_) known_reference_ = reference_ ? reference_() : std::vector<at::Tensor>();
  return n < known_reference_->size() ? (*known_reference_)[n] : at::Tensor();
}

std::optional<std::string> Tolerance::excess(std::size_t n, const at::Tensor& replayed,
                                             const at::Tensor& eager) const {
  const at::NoGradGuard no_grad;
  if (!eager.is_floating_point() && !eager.is_complex()) return "it must be equal";
  constexpr const char* kElsewhere = "not the same of its values are finite";
  const double magnitude = largest_value(eager);
  const at::ScalarType type = eager.scalar_type();
  const bool by_reference = !relative_ && (coarse_ || c10::isReducedFloatingType(type));
  if (!by_reference || !reference(n).defined()) {
    const double apart = distance(replayed, eager).largest;
    if (std::isinf(apart)) return kElsewhere;
    const double allowed = relative_.value_or(by_type(type, coarse_)) * magnitude;
    if (apart <= allowed) return std::nullopt;
    const std::string by =
        "by " + part(apart, magnitude) + " of its largest value, " + part(allowed, magnitude) + " allowed";
    const bool has_slack = relative_ && *relative_ > 0;
    const at::Tensor exact = has_slack ? reference(n) : at::Tensor();
    if (!exact.defined()) return by;
    const Distance eagers = distance(eager, exact);
    const bool has_a_right_digit = eagers.largest < magnitude / 10;
    // What is larger than eager's, or only there a finite number, is lost in eager's rounding, not made of
    // it.
    const bool is_rounding = std::isfinite(eagers.largest) && largest_value(exact) <= 2 * magnitude;
    if (has_a_right_digit || !is_rounding) return by;
    const auto excess = too_far(distance(replayed, exact), eagers, magnitude);
    return excess ? std::optional(by + ", and beside a run in float64 " + *excess) : std::nullopt;
  }
  const Distance ours = distance(replayed, reference(n));
  Distance eagers = distance(eager, reference(n));
  if (std::isinf(ours.largest) && !std::isinf(eagers.largest)) return kElsewhere;
  if (mean_too_large(ours, eagers, magnitude)) {
    const auto usual = usual_errors_ ? usual_errors_() : std::vector<double>();
    if (n < usual.size()) {
      constexpr double kLargestOfMany = 3;  // times their mean
      eagers = {std::max(eagers.mean, usual[n]), std::max(eagers.largest, kLargestOfMany * usual[n])};
    }
  }
  return too_far(ours, eagers, magnitude);
}

Tolerance tolerance_for(const Program& program, std::span<const at::Tensor> inputs,
                        std::optional<double> relative, Tolerance::Reference reference) {
  const bool tf32 =
      program.device().is_cuda() && (allows_tf32(at::Float32Op::CONV) || allows_tf32(at::Float32Op::RNN) ||
                                     allows_tf32(at::Float32Op::MATMUL));
  if (relative) return {relative, tf32, std::move(reference)};
  const bool by_reference =
      tf32 || std::any_of(program.outputs.begin(), program.outputs.end(),
                          [](const Output& output) { return c10::isReducedFloatingType(output.ref.dtype); });
  if (!by_reference) return {relative, tf32};
  return {relative, tf32, [exact = reference()] { return exact; },
          [&program, inputs = std::vector<at::Tensor>(inputs.begin(), inputs.end()),
           known = std::optional<std::vector<double>>()]() mutable {
            if (!known) known = usual_errors(program, inputs);  // several results may ask
            return *known;
          }};
}

}  // namespace nimble
