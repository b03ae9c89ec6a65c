#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <span>
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

// Products of one launch: of the same pixels, each with weights, bias and result of its own, and all else
// alike. Several of them have neither residual nor depthwise part.
using MatrixProducts = std::span<const MatrixConvolution>;
constexpr std::size_t kMostProducts = 8;

// Those that suit them, by how long they should take.
std::vector<MatrixTile> matrix_tiles(MatrixProducts products);

// By the tile with the number `candidate`. Arguments: x, weight, bias, residual, filters, filter bias (any
// address for what is absent), y. Throws Error where there are fewer tiles.
KernelSource matrix_source(const MatrixConvolution& convolution, std::int64_t candidate);

// The same for several; its one argument is a table.
KernelSource matrix_group_source(MatrixProducts products, std::int64_t candidate);
// Without biases where they have none.
std::vector<std::uint64_t> matrix_group_table(MatrixProducts products, std::int64_t candidate,
                                              const at::Tensor& x, at::TensorList weights,
                                              at::TensorList biases, at::TensorList results);

}  // namespace nimble::kernels
