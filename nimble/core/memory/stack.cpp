#include <algorithm>
#include <bit>

#include "nimble/core/memory/placement.h"

namespace nimble::memory {
namespace {

// Heights over positions: how high an interval is, and raising a whole interval to one height that is not
// below any in it. A segment tree; a node's height counts for all below it, so nothing ever has to be pushed
// down.
class Skyline {
 public:
  explicit Skyline(std::size_t positions)
      : leaves_(std::bit_ceil(std::max<std::size_t>(1, positions))),
        highest_(2 * leaves_),
        whole_(2 * leaves_) {}

  std::uint64_t highest(std::size_t first, std::size_t end) const {
    return highest(1, 0, leaves_, first, end);
  }
  void raise(std::size_t first, std::size_t end, std::uint64_t height) {
    raise(1, 0, leaves_, first, end, height);
  }

 private:
  std::uint64_t highest(std::size_t node, std::size_t low, std::size_t high, std::size_t first,
                        std::size_t end) const {
    if (first <= low && high <= end) return highest_[node];
    const std::size_t middle = (low + high) / 2;
    std::uint64_t result = whole_[node];
    if (first < middle) result = std::max(result, highest(2 * node, low, middle, first, end));
    if (end > middle) result = std::max(result, highest(2 * node + 1, middle, high, first, end));
    return result;
  }

  void raise(std::size_t node, std::size_t low, std::size_t high, std::size_t first, std::size_t end,
             std::uint64_t height) {
    highest_[node] = std::max(highest_[node], height);
    if (first <= low && high <= end) {
      whole_[node] = height;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    if (first < middle) raise(2 * node, low, middle, first, end, height);
    if (end > middle) raise(2 * node + 1, middle, high, first, end, height);
  }

  std::size_t leaves_;
  std::vector<std::uint64_t> highest_;  // by node: the greatest height anywhere below
  std::vector<std::uint64_t> whole_;    // by node: a height that everything below has at least
};

}  // namespace

Placement stack_up(const Liveness& buffers, std::span<const std::uint32_t> order) {
  Placement placement{std::vector<std::uint64_t>(buffers.size()), 0};
  Skyline skyline(buffers.end());
  for (std::uint32_t buffer : order) {
    const Lifetime& life = buffers[buffer];
    if (life.bytes == 0) continue;
    const std::uint64_t offset = align_up(skyline.highest(life.first, life.free_from), life.alignment);
    skyline.raise(life.first, life.free_from, offset + life.bytes);
    placement.offsets[buffer] = offset;
    placement.arena_bytes = std::max(placement.arena_bytes, offset + life.bytes);
  }
  return placement;
}

}  // namespace nimble::memory
