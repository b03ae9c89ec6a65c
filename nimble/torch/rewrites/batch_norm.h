#pragma once

#include "nimble/torch/rewrites/uses.h"

namespace nimble::batch_norm {

// The arguments of aten::native_batch_norm and of aten::cudnn_batch_norm, by place.
enum Argument { kInput, kGamma, kBeta, kMean, kVariance, kTraining, kMomentum, kEps };

// A batch norm that multiplies and shifts by numbers which never change while the program runs, and of whose
// results nobody looks at any but the first.
bool is_in_inference(const Task& task, const Uses& uses);

}  // namespace nimble::batch_norm
