#pragma once

#include <cudnn_graph.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::kernels::cudnn {

// How a tensor lies in memory.
struct Layout {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t alignment = 0;  // of its address, in bytes

  auto operator<=>(const Layout&) const = default;
};

// y = activation(convolution(x, weight) + residual + bias): all that a plan for it depends on.
struct Convolution {
  Layout x, weight, y;
  std::optional<Layout> residual, bias;
  std::vector<std::int64_t> stride, padding, dilation;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool allow_tf32 = false;
  bool deterministic = false;
  std::string activation;  // one that cuDNN has

  auto operator<=>(const Convolution&) const = default;
};
struct Pointers {
  const void* x;
  const void* weight;
  const void* residual;  // nullptr for none
  const void* bias;      // nullptr for none
  void* y;
};

// Whether cuDNN can do this activation behind a convolution; "none" it can.
bool has_activation(std::string_view name);

// Runs on the current stream, by the n-th of the ways that cuDNN proposes and can build. They are kept for
// the next time. The workspace comes from PyTorch's allocator, so a memory plan knows it. False where there
// is no way at all; throws Error where there are some, but fewer than `candidate`.
bool convolve(const Convolution& convolution, const Pointers& pointers, std::int64_t candidate);

}  // namespace nimble::kernels::cudnn
