#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

#include "nimble/kernels/image_layout.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

struct Depthwise {
  ImageLayout x, y;
  Window window;
  // Of the filters, [channels, 1, height, width]. With neighbouring channels beside each other (channel 1) a
  // kernel for neighbouring channels loads them as vectors.
  std::int64_t weight_channel, weight_row, weight_column;
  std::int64_t weight_first;  // its address, counted in elements
  c10::ScalarType dtype;
  bool has_bias;
  std::string_view before, after;
  std::int64_t candidate = 0;  // which way to divide the work
};

// How many ways there are to divide the work; which is fastest has to be measured.
constexpr std::int64_t kDepthwiseCandidates = 2;

// Arguments: x, weight, bias (any address where there is none), y.
KernelSource depthwise_source(const Depthwise& convolution);

}  // namespace nimble::kernels
