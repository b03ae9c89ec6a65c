#include "nimble/kernels/depthwise_source.h"

#include <algorithm>

#include "nimble/core/error.h"
#include "nimble/kernels/activation.h"
#include "nimble/kernels/device_sources.h"

namespace nimble::kernels {
namespace {

// How many pixels and channels a thread makes, and how many rows of its filter it has under way together.
struct Work {
  std::int64_t columns, lanes, rows_ahead;
};

std::int64_t element_size(const Depthwise& c) { return static_cast<std::int64_t>(c10::elementSize(c.dtype)); }

// The widest vector of neighbouring channels, at most `widest`, that all loads and stores are aligned for.
std::int64_t lanes_of(const Depthwise& c, std::int64_t widest) {
  if (c.weight_channel != 1) return 1;
  const auto lanes = c.y.channel_vector(c.x.channel_vector(widest));
  return CommonVector(lanes).divides(c.weight_row).divides(c.weight_column).divides(c.weight_first).width();
}

// What has to be loaded for one row of a filter, in words of a register.
std::int64_t words_of_row(const Depthwise& c, std::int64_t columns, std::int64_t lanes) {
  const Window& w = c.window;
  const auto reach = (columns - 1) * w.stride_width + (w.width - 1) * w.dilation_width + 1;
  return (reach + w.width) * ((lanes * element_size(c) + 3) / 4);
}

// Of a filter whose rows are all loaded together a thread waits for memory once.
std::int64_t rows_ahead_of(const Depthwise& c, std::int64_t columns, std::int64_t lanes, std::int64_t words) {
  return std::clamp(words / words_of_row(c, columns, lanes), std::int64_t{1}, c.window.height);
}

// Neighbouring pixels share most of what they read.
bool has_neighbours(const Depthwise& c) { return c.window.width > 1 && c.y.width > 1; }

// As many threads as a large GPU has room for, before any of them makes more than one pixel.
Work spread(const Depthwise& c) {
  constexpr std::int64_t kWidestLoad = 16, kManyThreads = 132 * 512, kMostWords = 128;
  const auto lanes = lanes_of(c, spread_vector(c.y.numel(), kWidestLoad / element_size(c)));
  const auto threads = c.y.numel() / lanes;
  const std::int64_t columns = !has_neighbours(c)            ? 1
                               : threads / 4 >= kManyThreads ? 4
                               : threads >= kManyThreads     ? 2
                                                             : 1;
  return {columns, lanes, rows_ahead_of(c, columns, lanes, kMostWords)};
}

// Fewer threads that load less in all. Where there are many pixels nevertheless, those hide the wait for
// memory by themselves, and want less code instead of rows ahead.
Work gathered(const Depthwise& c) {
  constexpr std::int64_t kWide = 8, kNarrow = 4;  // bytes
  constexpr std::int64_t kMostWords = 144, kManyPixels = 1 << 18, kFewTaps = 9;
  const Window& w = c.window;
  const auto lanes = [&](std::int64_t bytes) {
    return lanes_of(c, std::max<std::int64_t>(1, bytes / element_size(c)));
  };
  Work work{.columns = has_neighbours(c) ? 4 : 1, .lanes = lanes(kWide), .rows_ahead = 1};
  if (c.y.numel() >= kManyPixels && w.height * w.width > kFewTaps) return work;
  if (words_of_row(c, work.columns, work.lanes) * w.height > kMostWords) work.lanes = lanes(kNarrow);
  work.rows_ahead = rows_ahead_of(c, work.columns, work.lanes, kMostWords);
  return work;
}

Work work_of(const Depthwise& c) {
  switch (c.candidate) {
    case 0:
      return spread(c);
    case 1:
      return gathered(c);
  }
  throw Error("[nimble::depthwise_convolution] there are " + std::to_string(kDepthwiseCandidates) +
              " ways to divide the work, there is no number " + std::to_string(c.candidate));
}

}  // namespace

KernelSource depthwise_source(const Depthwise& c) {
  const auto [columns, lanes, rows_ahead] = work_of(c);
  const auto column_tiles = (c.y.width + columns - 1) / columns;
  const auto work = c.y.images * c.y.height * column_tiles * (c.y.channels / lanes);
  const std::string constants =
      index_type({c.x.elements(), c.y.elements()}) + type_alias("T", c.dtype) + c.window.constants() +
      c.x.constants("x") + c.y.constants("y") + constant("channels", c.y.channels) +
      constant("height", c.x.height) + constant("width", c.x.width) + constant("out_height", c.y.height) +
      constant("out_width", c.y.width) + constant("weight_channel", c.weight_channel) +
      constant("weight_row", c.weight_row) + constant("weight_column", c.weight_column) +
      constant("has_bias", c.has_bias) + constant("channels_fastest", c.x.channels_fastest()) +
      constant("lanes", lanes) + constant("columns", columns) + constant("rows_ahead", rows_ahead) +
      constant("before_keeps_zero", c.before != "sigmoid") + constant("column_tiles", column_tiles) +
      constant("work", work) + constant("threads", block_size(work)) +
      "__device__ inline float before(float x) { return " + device_function(c.before) + "(x); }\n" +
      "__device__ inline float after(float x) { return " + device_function(c.after) + "(x); }\n";
  return {with_prelude(constants, device::depthwise), block_count(work), block_size(work), true};
}

}  // namespace nimble::kernels
