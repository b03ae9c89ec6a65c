#pragma once

// The arguments of aten::convolution, by place.
namespace nimble::convolution {

enum Argument { kInput, kWeight, kBias, kStride, kPadding, kDilation, kTransposed, kOutputPadding, kGroups };

}  // namespace nimble::convolution
