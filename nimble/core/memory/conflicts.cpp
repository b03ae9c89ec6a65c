#include <algorithm>
#include <numeric>

#include "nimble/core/memory/placement.h"

namespace nimble::memory {

// Goes through time with the buffers that something later may still conflict with.
std::optional<Conflicts> Conflicts::find(const Liveness& buffers, std::size_t most_pairs) {
  std::vector<std::uint32_t> by_first;
  for (std::uint32_t b = 0; b < buffers.size(); ++b)
    if (buffers[b].bytes > 0) by_first.push_back(b);
  std::stable_sort(by_first.begin(), by_first.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return buffers[a].first < buffers[b].first; });

  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  std::vector<std::uint32_t> open;
  std::size_t looked_at = 0;
  for (std::uint32_t buffer : by_first) {
    const std::uint32_t now = buffers[buffer].first;
    std::erase_if(open, [&](std::uint32_t other) { return buffers[other].free_from <= now; });
    looked_at += open.size();
    if (looked_at > 4 * most_pairs) return std::nullopt;
    for (std::uint32_t other : open)
      if (buffers[other].last >= now || !buffers.before(other, buffer)) pairs.emplace_back(other, buffer);
    if (pairs.size() > most_pairs) return std::nullopt;
    open.push_back(buffer);
  }

  Conflicts conflicts;
  conflicts.begin_.resize(buffers.size() + 1);
  for (const auto& [a, b] : pairs) ++conflicts.begin_[a + 1], ++conflicts.begin_[b + 1];
  std::partial_sum(conflicts.begin_.begin(), conflicts.begin_.end(), conflicts.begin_.begin());
  conflicts.others_.resize(2 * pairs.size());
  std::vector<std::uint32_t> next(conflicts.begin_.begin(), conflicts.begin_.end() - 1);
  for (const auto& [a, b] : pairs) {
    conflicts.others_[next[a]++] = b;
    conflicts.others_[next[b]++] = a;
  }
  return conflicts;
}

Placement fill_gaps(const Liveness& buffers, const Conflicts& conflicts,
                    std::span<const std::uint32_t> order) {
  Placement placement{std::vector<std::uint64_t>(buffers.size()), 0};
  std::vector<bool> placed(buffers.size());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // [from, to)
  for (std::uint32_t buffer : order) {
    const Lifetime& life = buffers[buffer];
    if (life.bytes == 0) continue;
    taken.clear();
    for (std::uint32_t other : conflicts.of(buffer))
      if (placed[other])
        taken.emplace_back(placement.offsets[other], placement.offsets[other] + buffers[other].bytes);
    std::sort(taken.begin(), taken.end());
    std::uint64_t offset = 0;
    for (const auto& [from, to] : taken) {
      if (from >= offset + life.bytes) break;
      if (to > offset) offset = align_up(to, life.alignment);
    }
    placement.offsets[buffer] = offset;
    placement.arena_bytes = std::max(placement.arena_bytes, offset + life.bytes);
    placed[buffer] = true;
  }
  return placement;
}

}  // namespace nimble::memory
