#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include "nimble/kernels/image_layout.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

struct Pooling {
  enum class Kind { kMaximum, kAverage, kAdaptiveAverage };
  Kind kind;
  ImageLayout x, y;
  Window window = Window({}, {}, {}, {});  // of one pixel; not looked at by kAdaptiveAverage
  c10::ScalarType dtype;
  bool count_include_pad = false;
  std::optional<std::int64_t> divisor_override = {};
  std::string_view after;
};

// Arguments: x, y.
KernelSource pooling_source(const Pooling& pooling);

}  // namespace nimble::kernels
