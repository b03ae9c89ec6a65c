#pragma once

// The arguments of aten::convolution, by place, and those that aten::_convolution has besides.
namespace nimble::convolution {

enum Argument {
  kInput,
  kWeight,
  kBias,
  kStride,
  kPadding,
  kDilation,
  kTransposed,
  kOutputPadding,
  kGroups,
  kBenchmark,
  kDeterministic,
  kCudnnEnabled,
  kAllowTf32
};

}  // namespace nimble::convolution
