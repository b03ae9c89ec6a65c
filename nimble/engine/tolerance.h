#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// How far a rewritten program may be from eager. Relative to the largest value of a result: what the user
// set, or 1e-4 for float32 and 1e-9 for float64. Where eager itself computes more coarsely (float16,
// bfloat16, float32 by way of TF32), no further from a run of the recorded program in float64 than twice as
// far as eager is, or usually is. Where the user set something, that is asked only of values of which eager
// has no digit right: the gradient of a bias whose effect a batch norm takes away is nothing but rounding,
// and has to be no further from float64 than twice as far as eager's.
class Tolerance {
 public:
  // What a run in float64 gives, value by value; empty where there is none. Asked at most once.
  using Reference = std::function<std::vector<at::Tensor>()>;
  // See usual_errors: asked only where a result is too far off by eager's error in this run.
  using UsualErrors = std::function<std::vector<double>()>;

  Tolerance(std::optional<double> relative, bool coarse, Reference reference = {},
            UsualErrors usual_errors = {})
      : relative_(relative),
        coarse_(coarse),
        reference_(std::move(reference)),
        usual_errors_(std::move(usual_errors)) {}

  // By how much the n-th value of a replay is too far from eager's, and how much was allowed, in words; none
  // if it is near enough.
  std::optional<std::string> excess(std::size_t n, const at::Tensor& replayed, const at::Tensor& eager) const;

 private:
  // Undefined where there is none.
  at::Tensor reference(std::size_t n) const;

  std::optional<double> relative_;
  bool coarse_;  // eager computes more coarsely than the types of its results say
  Reference reference_;
  UsualErrors usual_errors_;
  mutable std::optional<std::vector<at::Tensor>> known_reference_;
};

// `relative` is what the user set, if anything. The program must live as long as the tolerance. Unless the
// user set something, `reference` is asked now, if ever.
Tolerance tolerance_for(const Program& program, std::span<const at::Tensor> inputs,
                        std::optional<double> relative, Tolerance::Reference reference);

}  // namespace nimble
