#include "nimble/kernels/pooling_source.h"

#include <algorithm>

#include "nimble/kernels/activation.h"
#include "nimble/kernels/device_sources.h"

namespace nimble::kernels {
namespace {

std::string shared_constants(const Pooling& p) {
  return index_type({p.x.elements(), p.y.elements()}) + type_alias("T", p.dtype) + p.x.constants("x") +
         p.y.constants("y") + constant("channels", p.y.channels) + constant("height", p.x.height) +
         constant("width", p.x.width) + "__device__ inline float after(float x) { return " +
         device_function(p.after) + "(x); }\n";
}

// Few results, each of many pixels: threads share the pixels.
KernelSource channel_means_source(const Pooling& p) {
  const unsigned block_channels = p.x.channels_fastest() ? 32 : 8, threads = 256;
  const auto blocks = p.y.images * ((p.y.channels + block_channels - 1) / block_channels);
  const std::string constants =
      shared_constants(p) + constant("block_channels", block_channels) + constant("threads", threads);
  return {with_prelude(constants, device::channel_means), static_cast<unsigned>(blocks), threads, true};
}

KernelSource window_source(const Pooling& p) {
  const auto widest = 16 / static_cast<std::int64_t>(c10::elementSize(p.dtype));
  const auto lanes = p.y.channel_vector(p.x.channel_vector(spread_vector(p.y.numel(), widest)));
  const auto work = p.y.numel() / lanes;
  // How many pixels a thread has under way together: as many as fit into its registers. A larger window is
  // divided into rounds of one size.
  constexpr std::int64_t kMostWords = 96;
  const auto words = (lanes * static_cast<std::int64_t>(c10::elementSize(p.dtype)) + 3) / 4;
  const auto pixels = p.window.height * p.window.width, most = std::max(kMostWords / words, std::int64_t{1});
  const auto rounds = (pixels + most - 1) / most, ahead = (pixels + rounds - 1) / rounds;
  const std::string constants =
      shared_constants(p) + p.window.constants() + constant("out_height", p.y.height) +
      constant("out_width", p.y.width) + constant("channels_fastest", p.x.channels_fastest()) +
      constant("takes_largest", p.kind == Pooling::Kind::kMaximum) +
      constant("is_adaptive", p.kind == Pooling::Kind::kAdaptiveAverage) +
      constant("counts_padding", p.count_include_pad) +
      constant("divisor_override", p.divisor_override.value_or(0)) + constant("lanes", lanes) +
      constant("ahead", ahead) + constant("work", work) + constant("threads", block_size(work));
  return {with_prelude(constants, device::pooling), block_count(work), block_size(work), true};
}

}  // namespace

KernelSource pooling_source(const Pooling& pooling) {
  const bool whole_image =
      pooling.kind == Pooling::Kind::kAdaptiveAverage && pooling.y.height == 1 && pooling.y.width == 1;
  return whole_image ? channel_means_source(pooling) : window_source(pooling);
}

}  // namespace nimble::kernels
