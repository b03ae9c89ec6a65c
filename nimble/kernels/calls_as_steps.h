#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <vector>

#include "nimble/kernels/expression.h"

namespace nimble::kernels {

// A call that goes over rows and over elements at once as the steps that it consists of, the last of which
// makes the result, of this type: a loss of a whole tensor is a loss for each element and their mean; the
// ways back through softmaxes and layer norms have sums in the middle. They compute in float32. Any other
// call is itself the only step. Among the steps the call's own inputs keep their numbers, and steps are
// counted from zero.
std::vector<Step> as_steps(const Step& call, c10::ScalarType type);

// A norm as steps that make all of its results, of which the first has this type: what it makes of the rows,
// and the numbers of each row that its way back needs (a layer norm's mean and inverse deviation, the latter
// alone of an RMS norm). `results` are the steps that make them, in order. None for any other call.
struct NormWithNumbers {
  std::vector<Step> steps;
  std::vector<std::size_t> results;
};
std::optional<NormWithNumbers> norm_with_numbers(const Step& call, c10::ScalarType type);

}  // namespace nimble::kernels
