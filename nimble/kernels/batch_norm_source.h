#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <vector>

#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// A batch norm with the statistics of its batch, over [images, channels, pixels] that lie one after the
// other.
struct BatchNorm {
  std::int64_t images = 0, channels = 0, pixels = 0;
  c10::ScalarType dtype = c10::kFloat;
  std::int64_t lanes = 1;  // the widest vector of pixels that lies aligned in all tensors
  std::string_view activation = "none";

  // None where our kernels know no such tensors: not in a row, of another type, empty.
  static std::optional<BatchNorm> of(const at::Tensor& x, at::TensorList alike, std::string_view activation);

  // Into how many parts each channel is divided, for a block each.
  std::int64_t parts() const;
  // For what blocks leave each other: two numbers for each part.
  std::vector<std::int64_t> room() const { return {channels, parts(), 2}; }
};

// Whether the way back through an activation can be told from what went into it.
bool has_way_back(std::string_view activation);

// The kernels, to be launched one after the other with the same arguments: see device/batch_norm_forward.cu
// and device/batch_norm_backward.cu.
std::vector<KernelSource> batch_norm_sources(const BatchNorm& norm, double momentum, double epsilon,
                                             bool tracks, bool adds);
std::vector<KernelSource> batch_norm_backward_sources(const BatchNorm& norm);

}  // namespace nimble::kernels
