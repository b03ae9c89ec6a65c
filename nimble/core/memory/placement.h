#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nimble/core/memory/liveness.h"

namespace nimble::memory {

// Where each buffer lies. Finding the smallest arena is NP-hard even on one stream, so several strategies try
// and the best placement is kept. All are deterministic, and take their limits in steps of work, never in
// time.
struct Placement {
  std::vector<std::uint64_t> offsets;  // by buffer
  std::uint64_t arena_bytes = 0;
};

constexpr std::uint64_t align_up(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) & ~(alignment - 1);
}

// Goes through time once, as an allocator at run time would: gives each buffer, at its first use, the idle
// bytes that fit it best. O(buffers * idle pieces); good on every kind of graph.
Placement sweep_through_time(const Liveness& buffers);

// Puts one buffer after the other, in the given order, on top of all earlier ones that may be live with it,
// and never below. O(buffers * log(tasks)); with the longest lived first it is exact for lifetimes that nest,
// as those of activations do between forward and backward. Treats lifetimes that only happens-before tells
// apart as overlapping.
Placement stack_up(const Liveness& buffers, std::span<const std::uint32_t> order);

// Which pairs of buffers must not share bytes, listed for each buffer.
class Conflicts {
 public:
  // Nothing if there are more than `most_pairs`, or too much work is needed to tell.
  static std::optional<Conflicts> find(const Liveness& buffers, std::size_t most_pairs);

  std::span<const std::uint32_t> of(std::uint32_t buffer) const {
    return {others_.data() + begin_[buffer], others_.data() + begin_[buffer + 1]};
  }
  std::size_t pair_count() const { return others_.size() / 2; }

 private:
  std::vector<std::uint32_t> begin_, others_;
};

// Puts one buffer after the other, in the given order, into the lowest gap that its conflicts leave. With the
// largest first it is the best of the strategies on most workloads, and the most expensive.
Placement fill_gaps(const Liveness& buffers, const Conflicts& conflicts,
                    std::span<const std::uint32_t> order);

}  // namespace nimble::memory
