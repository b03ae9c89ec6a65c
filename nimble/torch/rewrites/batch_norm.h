#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "nimble/torch/rewrites/uses.h"

namespace nimble::batch_norm {

// The arguments of aten::native_batch_norm and of aten::cudnn_batch_norm, by place.
enum Argument { kInput, kGamma, kBeta, kMean, kVariance, kTraining, kMomentum, kEps };

// A batch norm that multiplies and shifts by numbers which never change while the program runs, and of whose
// results nobody looks at any but the first.
bool is_in_inference(const Task& task, const Uses& uses);

// Those numbers, one for each channel. In double precision, so that who folds them rounds once.
struct ScaleAndShift {
  at::Tensor scale, shift;
};
ScaleAndShift scale_and_shift(const std::optional<at::Tensor>& gamma, const std::optional<at::Tensor>& beta,
                              const at::Tensor& mean, const at::Tensor& variance, double eps);

}  // namespace nimble::batch_norm
