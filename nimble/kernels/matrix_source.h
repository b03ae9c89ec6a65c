#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>
#include <vector>

#include "nimble/kernels/image_layout.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// y = after(weight · between(depthwise(before(x)) + filter_bias) + bias + residual): a convolution with a
// filter of one pixel behind a depthwise one; or one with any filter by itself. All have the channels of a
// pixel beside each other; filters have nothing between their columns and rows.
struct MatrixConvolution {
  ImageLayout x;
  std::int64_t channels, out_height, out_width;  // of the result
  std::int64_t weight_row;                       // how far apart filters of [channels, …, inner] lie
  std::int64_t y_step, residual_step;            // how far apart pixels lie, evenly
  c10::ScalarType dtype;
  std::string_view after;

  bool has_filters;                  // there is a depthwise part
  Window window;                     // of the depthwise part, or else of the convolution itself
  std::string_view before, between;  // of the depthwise part
  bool tf32 = false;                 // float32 is rounded, instead of taken apart

  // Addresses, counted in elements; none for what is absent.
  std::int64_t weight_first, y_first;
  std::optional<std::int64_t> bias_first, residual_first, filters_first, filter_bias_first;
};

// How the work is divided: a block of `warps` warps makes `channels` channels of eight times `columns`
// pixels.
struct MatrixTile {
  std::int64_t columns, channels, warps;
  friend bool operator==(const MatrixTile&, const MatrixTile&) = default;
};

// Those that suit a convolution, by how long they should take.
std::vector<MatrixTile> matrix_tiles(const MatrixConvolution& convolution);

// By the tile with the number `candidate`. Arguments: x, weight, bias, residual, filters, filter bias (any
// address for what is absent), y. Throws Error where there are fewer tiles.
KernelSource matrix_source(const MatrixConvolution& convolution, std::int64_t candidate);

}  // namespace nimble::kernels
