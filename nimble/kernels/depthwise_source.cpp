#include "nimble/kernels/depthwise_source.h"

#include <algorithm>

#include "nimble/kernels/activation.h"
#include "nimble/kernels/device_sources.h"

namespace nimble::kernels {
namespace {

constexpr std::int64_t kWidestLoad = 16;  // bytes

std::int64_t lanes_of(const Depthwise& c) {
  if (c.weight_channel != 1) return 1;
  const auto widest = kWidestLoad / static_cast<std::int64_t>(c10::elementSize(c.dtype));
  const auto lanes = c.y.channel_vector(c.x.channel_vector(spread_vector(c.y.numel(), widest)));
  return CommonVector(lanes).divides(c.weight_row).divides(c.weight_column).divides(c.weight_first).width();
}

// Neighbouring pixels share most of what they read, but only where enough threads are left.
std::int64_t columns_of(const Depthwise& c, std::int64_t lanes) {
  constexpr std::int64_t kManyThreads = 132 * 512;
  const auto threads = c.y.numel() / lanes;
  if (c.window.width == 1 || c.y.width == 1) return 1;
  return threads / 4 >= kManyThreads ? 4 : threads / 2 >= kManyThreads / 2 ? 2 : 1;
}

// How many rows of a filter a thread has under way together: as many as fit into its registers.
std::int64_t rows_ahead_of(const Depthwise& c, std::int64_t lanes, std::int64_t columns) {
  constexpr std::int64_t kMostWords = 128;
  const Window& w = c.window;
  const auto reach = (columns - 1) * w.stride_width + (w.width - 1) * w.dilation_width + 1;
  const auto words = (lanes * static_cast<std::int64_t>(c10::elementSize(c.dtype)) + 3) / 4;
  return std::clamp(kMostWords / ((reach + w.width) * words), std::int64_t{1}, w.height);
}

}  // namespace

KernelSource depthwise_source(const Depthwise& c) {
  const auto lanes = lanes_of(c), columns = columns_of(c, lanes);
  const auto column_tiles = (c.y.width + columns - 1) / columns;
  const auto work = c.y.images * c.y.height * column_tiles * (c.y.channels / lanes);
  const std::string constants =
      index_type({c.x.elements(), c.y.elements()}) + type_alias("T", c.dtype) + c.window.constants() +
      c.x.constants("x") + c.y.constants("y") + constant("channels", c.y.channels) +
      constant("height", c.x.height) + constant("width", c.x.width) + constant("out_height", c.y.height) +
      constant("out_width", c.y.width) + constant("weight_channel", c.weight_channel) +
      constant("weight_row", c.weight_row) + constant("weight_column", c.weight_column) +
      constant("has_bias", c.has_bias) + constant("channels_fastest", c.x.channels_fastest()) +
      constant("lanes", lanes) + constant("columns", columns) +
      constant("rows_ahead", rows_ahead_of(c, lanes, columns)) +
      constant("before_keeps_zero", c.before != "sigmoid") + constant("column_tiles", column_tiles) +
      constant("work", work) + constant("threads", block_size(work)) +
      "__device__ inline float before(float x) { return " + device_function(c.before) + "(x); }\n" +
      "__device__ inline float after(float x) { return " + device_function(c.after) + "(x); }\n";
  return {with_prelude(constants, device::depthwise), block_count(work), block_size(work), true};
}

}  // namespace nimble::kernels
