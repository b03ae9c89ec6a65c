#include "nimble/kernels/matrix_source.h"

#include <algorithm>

#include "nimble/core/error.h"
#include "nimble/kernels/activation.h"
#include "nimble/kernels/device_sources.h"

namespace nimble::kernels {
namespace {

constexpr std::int64_t kMostShared = 48 * 1024;  // bytes that every kernel may have

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How many elements 16 bytes hold.
std::int64_t piece_of(const MatrixConvolution& c) {
  return 16 / static_cast<std::int64_t>(c10::elementSize(c.dtype));
}
std::int64_t chunks_of(const MatrixConvolution& c) {
  const auto taps = c.has_filters ? 1 : c.window.height * c.window.width;
  return taps * ceil_div(c.x.channels, 4 * piece_of(c));
}

// How many pieces, of four registers, a thread may load together: of many threads, each has few registers.
std::int64_t most_pieces(const MatrixTile& tile) { return tile.warps > 8 ? 14 : 24; }

// How many chunks a warp has under way together.
std::int64_t ahead_of(const MatrixConvolution& c, const MatrixTile& tile) {
  if (c.has_filters) return 1;
  const auto pieces = tile.columns + tile.channels / 8;
  return std::clamp(most_pieces(tile) / pieces, std::int64_t{1}, ceil_div(chunks_of(c), tile.warps));
}

// What a row of a filter has to load.
std::int64_t pieces_of_row(const MatrixConvolution& c, const MatrixTile& tile) {
  const Window& w = c.window;
  return (tile.columns - 1) * w.stride_width + (w.width - 1) * w.dilation_width + 1 + w.width;
}

// How many rows of a filter it has under way together.
std::int64_t rows_ahead_of(const MatrixConvolution& c, const MatrixTile& tile) {
  return std::clamp(most_pieces(tile) / pieces_of_row(c, tile), std::int64_t{1}, c.window.height);
}

std::int64_t blocks_of(const MatrixConvolution& c, const MatrixTile& tile) {
  const auto groups = c.x.images * c.out_height * ceil_div(c.out_width, tile.columns);
  return ceil_div(groups, 8) * ceil_div(c.channels, tile.channels);
}
std::int64_t blocks_of(MatrixProducts products, const MatrixTile& tile) {
  std::int64_t blocks = 0;
  for (const MatrixConvolution& product : products) blocks += blocks_of(product, tile);
  return blocks;
}

// An estimate, in cycles of a large GPU: nobody hides the latency of a small product, and what the warps of
// one multiprocessor load comes one after the other.
std::int64_t cycles_of(MatrixProducts products, const MatrixTile& tile) {
  const MatrixConvolution& c = products.front();
  constexpr std::int64_t kMultiprocessors = 132, kLatency = 700, kCyclesOfALoad = 4;
  const auto pixel_loads = c.has_filters ? c.window.height * pieces_of_row(c, tile) : tile.columns;
  const auto rounds = ceil_div(chunks_of(c), tile.warps);
  const auto waits = ceil_div(rounds, ahead_of(c, tile)) *
                     (c.has_filters ? ceil_div(c.window.height, rows_ahead_of(c, tile)) : 1);
  const auto loads = ceil_div(blocks_of(products, tile), kMultiprocessors) * tile.warps * rounds *
                     (pixel_loads + tile.channels / 8);
  return loads * kCyclesOfALoad + waits * kLatency;
}

std::string function(std::string_view name, std::string_view activation) {
  return "__device__ inline float " + std::string(name) + "(float x) { return " +
         device_function(activation) + "(x); }\n";
}

std::string vectors(MatrixProducts products) {
  const MatrixConvolution& c = products.front();
  const auto piece = piece_of(c);
  CommonVector weight(piece), filter(piece), filter_bias(piece), out(4);
  weight.divides(c.x.channels);
  filter.divides(c.x.channels).divides(c.filters_first.value_or(0));
  filter_bias.divides(c.x.channels).divides(c.filter_bias_first.value_or(0));
  for (const MatrixConvolution& product : products) {
    weight.divides(product.weight_row).divides(product.weight_first);
    for (const std::int64_t number :
         {product.channels, product.y_step, product.y_first, product.bias_first.value_or(0),
          product.residual_step, product.residual_first.value_or(0)}) {
      out.divides(number);
    }
  }
  return constant("x_lanes", c.x.channel_vector(piece)) + constant("weight_lanes", weight.width()) +
         constant("filter_lanes", filter.width()) + constant("filter_bias_lanes", filter_bias.width()) +
         constant("out_lanes", out.width());
}

MatrixTile tile_of(MatrixProducts products, std::int64_t candidate) {
  const auto tiles = matrix_tiles(products);
  if (candidate < 0 || candidate >= static_cast<std::int64_t>(tiles.size()))
    throw Error("[nimble::matrix_convolution] there are " + std::to_string(tiles.size()) +
                " ways to divide this product, there is no number " + std::to_string(candidate));
  return tiles[static_cast<std::size_t>(candidate)];
}

// All that the products have in common, and then `entry`, the kernel itself.
KernelSource source_of(MatrixProducts products, std::int64_t candidate, const std::string& more_constants,
                       std::string_view entry) {
  const MatrixConvolution& c = products.front();
  const MatrixTile tile = tile_of(products, candidate);
  const auto inner = c.x.channels;
  std::int64_t widest = 0;
  for (const MatrixConvolution& product : products)
    widest = std::max({widest, product.y_step, product.residual_step});
  const std::string constants =
      index_type({c.x.elements(), c.x.images * c.out_height * c.out_width * widest}) +
      type_alias("T", c.dtype) + c.window.constants() + c.x.constants("x") + vectors(products) +
      constant("images", c.x.images) + constant("height", c.x.height) + constant("width", c.x.width) +
      constant("out_height", c.out_height) + constant("out_width", c.out_width) + constant("inner", inner) +
      constant("weight_row", c.weight_row) +
      constant("residual_step", c.residual_first ? c.residual_step : 0) +
      constant("filter_row", c.window.width * inner) + constant("filter_column", inner) +
      constant("has_bias", c.bias_first.has_value()) +
      constant("has_residual", c.residual_first.has_value()) + constant("has_filters", c.has_filters) +
      constant("has_filter_bias", c.filter_bias_first.has_value()) +
      constant("takes_apart", c.dtype == c10::kFloat && !c.tf32) + constant("columns", tile.columns) +
      constant("column_tiles", ceil_div(c.out_width, tile.columns)) +
      constant("tile_channels", tile.channels) + constant("warps", tile.warps) +
      constant("ahead", ahead_of(c, tile)) + constant("rows_ahead", rows_ahead_of(c, tile)) +
      constant("before_keeps_zero", c.before != "sigmoid") + more_constants + function("before", c.before) +
      function("between", c.between) + function("after", c.after);
  return {.text = with_prelude(constants, std::string(device::matrix).append(entry)),
          .blocks = static_cast<unsigned>(blocks_of(products, tile)),
          .threads = static_cast<unsigned>(32 * tile.warps),
          .contract = true};
}

}  // namespace

std::vector<MatrixTile> matrix_tiles(MatrixProducts products) {
  const MatrixConvolution& c = products.front();
  const std::int64_t most_channels = std::ranges::max(products, {}, &MatrixConvolution::channels).channels;
  std::vector<MatrixTile> tiles;
  for (const std::int64_t columns : {2, 4}) {
    for (const std::int64_t channels : {16, 32, 64}) {
      if (channels > 16 && channels >= 2 * most_channels) continue;
      for (const std::int64_t warps : {4, 8, 16}) {
        // What does not fit into the registers.
        const bool large = columns == 4 && (c.has_filters ? channels == 64 : warps == 16);
        if (large || (c.has_filters && warps == 16)) continue;
        const MatrixTile tile{columns, channels, std::min(warps, chunks_of(c))};
        const auto shared = tile.warps * 8 * columns * (channels + 8) * std::int64_t{sizeof(float)};
        if (shared > kMostShared || std::find(tiles.begin(), tiles.end(), tile) != tiles.end()) continue;
        tiles.push_back(tile);
      }
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(), [&](const MatrixTile& a, const MatrixTile& b) {
    return cycles_of(products, a) < cycles_of(products, b);
  });
  return tiles;
}

KernelSource matrix_source(const MatrixConvolution& c, std::int64_t candidate) {
  KernelSource kernel = source_of({&c, 1}, candidate, constant("channels", c.channels), device::matrix_alone);
  kernel.numbers = {c.y_step};
  return kernel;
}

KernelSource matrix_group_source(MatrixProducts products, std::int64_t candidate) {
  return source_of(products, candidate, constant("products", static_cast<std::int64_t>(products.size())),
                   device::matrix_group);
}

std::vector<std::uint64_t> matrix_group_table(MatrixProducts products, std::int64_t candidate,
                                              const at::Tensor& x, at::TensorList weights,
                                              at::TensorList biases, at::TensorList results) {
  const auto address = [](const at::Tensor& tensor) {
    return reinterpret_cast<std::uint64_t>(tensor.const_data_ptr());
  };
  const MatrixTile tile = tile_of(products, candidate);
  std::vector<std::uint64_t> table = {address(x)};
  std::int64_t first_block = 0;
  for (std::size_t p = 0; p < products.size(); ++p) {
    table.insert(table.end(),
                 {address(weights[p]), biases.empty() ? 0 : address(biases[p]), address(results[p]),
                  static_cast<std::uint64_t>(products[p].y_step),
                  static_cast<std::uint64_t>(products[p].channels), static_cast<std::uint64_t>(first_block)});
    first_block += blocks_of(products[p], tile);
  }
  return table;
}

}  // namespace nimble::kernels
