#pragma once

#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// Each is described where it is defined, in the file of its name.
extern const Rewrite kCommonSubexpressions;
extern const Rewrite kFoldBatchNorm;
extern const Rewrite kMkldnnConvolution;
extern const Rewrite kOutOfPlace;
extern const Rewrite kWeightsOnce;

}  // namespace nimble
