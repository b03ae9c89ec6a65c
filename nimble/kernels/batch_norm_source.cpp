#include "nimble/kernels/batch_norm_source.h"

#include <algorithm>
#include <cstdio>

#include "nimble/core/error.h"
#include "nimble/kernels/activation.h"
#include "nimble/kernels/device_sources.h"
#include "nimble/kernels/image_layout.h"

namespace nimble::kernels {
namespace {

constexpr std::int64_t kWarp = 32;
// What a thread of a block that has a channel to itself keeps in registers.
constexpr std::int64_t kMostKept = 16, kMostThreads = 512;

std::int64_t divided(std::int64_t work, std::int64_t by) { return (work + by - 1) / by; }

std::string float_constant(std::string_view name, double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.9g", value);
  return "constexpr float " + std::string(name) + " = static_cast<float>(" + text + ");\n";
}

// How the kernels divide their work: what all of them are compiled for.
struct Division {
  std::int64_t parts, threads, items;

  explicit Division(const BatchNorm& norm) : parts(norm.parts()) {
    const std::int64_t vectors = divided(norm.images * norm.pixels / norm.lanes, parts);
    const std::int64_t most = parts == 1 ? kMostThreads : 256;
    // A few vectors for each thread, so that several loads are under way.
    constexpr std::int64_t kUnderWay = 2;
    threads = std::clamp(divided(divided(vectors, kUnderWay), kWarp) * kWarp, kWarp, most);
    items = divided(vectors, threads);
  }
};

std::vector<KernelSource> sources(const BatchNorm& norm, const std::string& constants,
                                  std::string_view kernel) {
  const Division division(norm);
  const std::string shared =
      index_type({norm.images * norm.channels * norm.pixels}) + type_alias("T", norm.dtype) +
      constant("images", norm.images) + constant("channels", norm.channels) +
      constant("pixels", norm.pixels) + constant("lanes", norm.lanes) + constant("parts", division.parts) +
      constant("threads", division.threads) + constant("items", division.items) + constants;
  const std::string text = std::string(device::batch_norm) + std::string(kernel);
  const auto blocks = static_cast<unsigned>(norm.channels * division.parts);
  std::vector<KernelSource> all;
  const std::vector<std::int64_t> passes =
      division.parts == 1 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{1, 2};
  for (const std::int64_t pass : passes) {
    all.push_back({with_prelude(shared + constant("pass", pass), text), blocks,
                   static_cast<unsigned>(division.threads), false});
  }
  return all;
}

}  // namespace

std::optional<BatchNorm> BatchNorm::of(const at::Tensor& x, at::TensorList alike,
                                       std::string_view activation) {
  const c10::ScalarType type = x.scalar_type();
  const bool known = type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16;
  if (!known || x.dim() < 2 || x.numel() == 0 || !x.is_contiguous()) return {};
  BatchNorm norm{.images = x.size(0),
                 .channels = x.size(1),
                 .pixels = x.numel() / (x.size(0) * x.size(1)),
                 .dtype = type,
                 .activation = activation};
  CommonVector vector(16 / static_cast<std::int64_t>(c10::elementSize(type)));
  vector.divides(norm.pixels).divides(address_in_elements(x));
  for (const at::Tensor& tensor : alike) {
    if (!tensor.defined()) continue;
    if (tensor.scalar_type() != type || tensor.sizes() != x.sizes() || !tensor.is_contiguous()) return {};
    vector.divides(address_in_elements(tensor));
  }
  norm.lanes = vector.width();
  return norm;
}

std::int64_t BatchNorm::parts() const {
  // One launch and one look at each number is best, as long as a block can keep a channel.
  const std::int64_t elements = images * pixels;
  if (elements <= kMostThreads * kMostKept) return 1;
  // Else enough blocks for a large GPU, each with enough to do. What they leave, the threads of one warp
  // can put together.
  constexpr std::int64_t kManyBlocks = 132 * 16, kEnoughForABlock = 256 * 8;
  const std::int64_t wanted = std::max(divided(kManyBlocks, channels), elements / (256 * 64));
  return std::clamp(std::min(wanted, elements / kEnoughForABlock), std::int64_t{2}, kWarp);
}

bool has_way_back(std::string_view activation) {
  return activation == "none" || activation == "relu" || activation == "relu6";
}

std::vector<KernelSource> batch_norm_sources(const BatchNorm& norm, double momentum, double epsilon,
                                             bool tracks, bool adds) {
  const std::string constants = float_constant("momentum", momentum) + float_constant("epsilon", epsilon) +
                                constant("tracks", tracks) + constant("adds", adds) +
                                "__device__ inline float after(float x) { return " +
                                device_function(norm.activation) + "(x); }\n";
  return sources(norm, constants, device::batch_norm_forward);
}

std::vector<KernelSource> batch_norm_backward_sources(const BatchNorm& norm) {
  if (!has_way_back(norm.activation)) {
    throw InvalidInput("[nimble::batch_norm_training_backward] there is no way back through " +
                       std::string(norm.activation));
  }
  const std::string stops = norm.activation == "none"   ? "false"
                            : norm.activation == "relu" ? "x <= 0.0f"
                                                        : "x <= 0.0f || x >= 6.0f";
  return sources(norm, "__device__ inline bool passes(float x) { return !(" + stops + "); }\n",
                 device::batch_norm_backward);
}

}  // namespace nimble::kernels
