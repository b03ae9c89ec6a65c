#include <algorithm>

#include "nimble/core/memory/placement.h"

namespace nimble::memory {
namespace {

struct Extent {
  std::uint64_t from = 0, to = 0;
};

// Bytes that a buffer must keep clear of: ascending extents with gaps between them. Most conflicts of a
// buffer lie side by side, so there are far fewer extents than conflicts.
class Taken {
 public:
  void add(Extent extent) {
    const auto first = std::lower_bound(extents_.begin(), extents_.end(), extent.from,
                                        [](const Extent& e, std::uint64_t from) { return e.to < from; });
    auto last = first;
    for (; last != extents_.end() && last->from <= extent.to; ++last) {
      extent.from = std::min(extent.from, last->from);
      extent.to = std::max(extent.to, last->to);
    }
    if (first == last) {
      extents_.insert(first, extent);
    } else {
      *first = extent;
      extents_.erase(first + 1, last);
    }
  }

  std::uint64_t lowest_gap(std::uint64_t bytes, std::uint64_t alignment) const {
    std::uint64_t offset = 0;
    for (const Extent& extent : extents_) {
      if (offset + bytes <= extent.from) break;
      offset = align_up(extent.to, alignment);
    }
    return offset;
  }

  void clear() { extents_ = {}; }

 private:
  std::vector<Extent> extents_;
};

}  // namespace

Placement fill_gaps(const Liveness& buffers, const Conflicts& conflicts,
                    std::span<const std::uint32_t> order) {
  Placement placement{std::vector<std::uint64_t>(buffers.size()), 0};
  std::vector<Taken> taken(buffers.size());
  std::vector<bool> placed(buffers.size());
  for (std::uint32_t buffer : order) {
    const Lifetime& life = buffers[buffer];
    const std::uint64_t offset = taken[buffer].lowest_gap(life.bytes, life.alignment);
    taken[buffer].clear();
    placed[buffer] = true;
    for (std::uint32_t other : conflicts.of(buffer))
      if (!placed[other]) taken[other].add({offset, offset + life.bytes});
    placement.offsets[buffer] = offset;
    placement.arena_bytes = std::max(placement.arena_bytes, offset + life.bytes);
  }
  return placement;
}

}  // namespace nimble::memory
