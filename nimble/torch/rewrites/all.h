#pragma once

#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// Each is described where it is defined, in the file of its name.
extern const Rewrite kCatByAddress;
extern const Rewrite kChannelsLast;
extern const Rewrite kCommonSubexpressions;
extern const Rewrite kFoldBatchNorm;
extern const Rewrite kFoldPadding;
extern const Rewrite kFuseBatchNorm;
extern const Rewrite kFuseConvolution;
extern const Rewrite kFuseForeach;
extern const Rewrite kFusePointwise;
extern const Rewrite kFuseRows;
extern const Rewrite kGroupConvolutions;
extern const Rewrite kLinearActivation;
extern const Rewrite kMatrixLinear;
extern const Rewrite kMergeLinears;
extern const Rewrite kMkldnnConvolution;
extern const Rewrite kMkldnnLinear;
extern const Rewrite kNormThroughCat;
extern const Rewrite kOpenAttention;
extern const Rewrite kOutOfPlace;
extern const Rewrite kPointwiseBlocks;
extern const Rewrite kPooling;
extern const Rewrite kReluThroughCat;
extern const Rewrite kScaleBatchNorm;
extern const Rewrite kSeparableConvolution;
extern const Rewrite kSumOfProducts;
extern const Rewrite kUnneededCopies;
extern const Rewrite kUnreadWork;
extern const Rewrite kWeightsOnce;

}  // namespace nimble
