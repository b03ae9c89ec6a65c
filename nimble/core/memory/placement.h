#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nimble/core/memory/liveness.h"

namespace nimble::memory {

// Where buffers lie. Finding the smallest arena is NP-hard even on one stream, so several strategies try and
// the best placement is kept. All are deterministic, and their limits are steps of work, never time.
struct Placement {
  std::vector<std::uint64_t> offsets;  // by buffer; 0 for those that were not placed
  std::uint64_t arena_bytes = 0;
};

constexpr std::uint64_t align_up(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) & ~(alignment - 1);
}

// Goes through time once, as an allocator at run time would: gives each of `chosen`, at its first use, the
// idle bytes that fit it best. O(buffers * idle pieces); never bad.
Placement sweep_through_time(const Liveness& buffers, std::span<const std::uint32_t> chosen);

// Which pairs of buffers must not share bytes, listed for each buffer.
class Conflicts {
 public:
  // Only among `chosen`. Nothing if there are more than `most_pairs`, or if finding out takes much more work.
  static std::optional<Conflicts> find(const Liveness& buffers, std::span<const std::uint32_t> chosen,
                                       std::size_t most_pairs);

  std::span<const std::uint32_t> of(std::uint32_t buffer) const {
    return {others_.data() + begin_[buffer], others_.data() + begin_[buffer + 1]};
  }
  std::size_t pair_count() const { return others_.size() / 2; }

 private:
  std::vector<std::uint32_t> begin_, others_;
};

// Puts one buffer after the other, in the given order, into the lowest gap that its conflicts leave.
// O(conflicts), with a logarithm for those below the gap. With the largest first it is the best strategy on
// most workloads.
Placement fill_gaps(const Liveness& buffers, const Conflicts& conflicts,
                    std::span<const std::uint32_t> order);

// The best that the strategies find within a fixed amount of work; an arena of `enough` bytes ends the
// search.
Placement best_placement(const Liveness& buffers, std::uint64_t enough);

}  // namespace nimble::memory
