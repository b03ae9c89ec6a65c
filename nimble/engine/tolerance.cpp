#include "nimble/engine/tolerance.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "nimble/engine/distance.h"
#include "nimble/engine/usual_errors.h"
#include "nimble/torch/run_in_double.h"
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

}  // namespace

std::optional<std::string> Tolerance::excess(std::size_t n, const at::Tensor& replayed,
                                             const at::Tensor& eager) const {
  const at::NoGradGuard no_grad;
  if (!eager.is_floating_point() && !eager.is_complex()) return "it must be equal";
  constexpr const char* kElsewhere = "not the same of its values are finite";
  const double magnitude = largest_value(eager);
  const at::ScalarType type = eager.scalar_type();
  const bool by_reference =
      !relative_ && (coarse_ || c10::isReducedFloatingType(type)) && n < reference_.size();
  if (!by_reference) {
    const double apart = distance(replayed, eager).largest;
    if (std::isinf(apart)) return kElsewhere;
    const double allowed = relative_.value_or(by_type(type, coarse_)) * magnitude;
    if (apart <= allowed) return std::nullopt;
    return "by " + part(apart, magnitude) + " of its largest value, " + part(allowed, magnitude) + " allowed";
  }
  // The largest of many errors is a matter of luck, twice as large at times where all in all they are not.
  constexpr double kTimes = 2, kTimesLargest = 4, kLeast = 1e-5;
  const Distance ours = distance(replayed, reference_[n]);
  Distance theirs = distance(eager, reference_[n]);
  if (std::isinf(ours.largest) && !std::isinf(theirs.largest)) return kElsewhere;
  if (ours.mean > kTimes * theirs.mean + kLeast * magnitude) {
    const auto usual = usual_errors_ ? usual_errors_() : std::vector<double>();
    if (n < usual.size()) {
      constexpr double kLargestOfMany = 3;  // times their mean
      theirs = {std::max(theirs.mean, usual[n]), std::max(theirs.largest, kLargestOfMany * usual[n])};
    }
  }
  const auto compare = [&](const char* name, double ours, double theirs,
                           double times) -> std::optional<std::string> {
    const double allowed = times * theirs + kLeast * magnitude;
    if (ours <= allowed) return std::nullopt;
    return std::string(name) + " is " + part(ours, magnitude) + " of its largest value, eager's " +
           part(theirs, magnitude) + ", allowed " + part(allowed, magnitude);
  };
  if (auto mean = compare("its mean error", ours.mean, theirs.mean, kTimes)) return mean;
  return compare("its largest error", ours.largest, theirs.largest, kTimesLargest);
}

Tolerance tolerance_for(const Program& program, std::span<const at::Tensor> inputs,
                        std::optional<double> relative) {
  const bool tf32 =
      program.device().is_cuda() && (allows_tf32(at::Float32Op::CONV) || allows_tf32(at::Float32Op::RNN) ||
                                     allows_tf32(at::Float32Op::MATMUL));
  const bool by_reference =
      tf32 || std::any_of(program.outputs.begin(), program.outputs.end(),
                          [](const Output& output) { return c10::isReducedFloatingType(output.ref.dtype); });
  if (relative || !by_reference) return {relative, tf32, {}};
  return {relative, tf32, run_in_double(program, inputs),
          [&program, inputs = std::vector<at::Tensor>(inputs.begin(), inputs.end()),
           known = std::optional<std::vector<double>>()]() mutable {
            if (!known) known = usual_errors(program, inputs);  // several results may ask
            return *known;
          }};
}

}  // namespace nimble
