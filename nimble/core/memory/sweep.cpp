#include <algorithm>

#include "nimble/core/memory/idle_bytes.h"
#include "nimble/core/memory/placement.h"

namespace nimble::memory {

Placement sweep_through_time(const Liveness& buffers, std::span<const std::uint32_t> chosen) {
  std::vector<std::uint32_t> by_first(chosen.begin(), chosen.end()), by_last = by_first;
  std::stable_sort(by_first.begin(), by_first.end(), [&](std::uint32_t a, std::uint32_t b) {
    return buffers[a].first != buffers[b].first ? buffers[a].first < buffers[b].first
                                                : buffers[a].bytes > buffers[b].bytes;
  });
  std::stable_sort(by_last.begin(), by_last.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return buffers[a].last < buffers[b].last; });

  Placement placement{std::vector<std::uint64_t>(buffers.size()), 0};
  IdleBytes idle(buffers);
  auto retiring = by_last.begin();
  for (std::uint32_t buffer : by_first) {
    const Lifetime& life = buffers[buffer];
    idle.advance(life.first);
    for (; buffers[*retiring].last < life.first; ++retiring) {
      const std::uint64_t offset = placement.offsets[*retiring];
      idle.add({offset, offset + buffers[*retiring].bytes}, *retiring);
    }
    const Gap gap = idle.best_for(buffer, placement.arena_bytes);
    const std::uint64_t offset = align_up(gap.offset, life.alignment), end = offset + life.bytes;
    idle.take(gap, offset, end);
    placement.offsets[buffer] = offset;
    placement.arena_bytes = std::max(placement.arena_bytes, end);
  }
  return placement;
}

}  // namespace nimble::memory
