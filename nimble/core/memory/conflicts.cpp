#include <algorithm>

#include "nimble/core/memory/placement.h"

namespace nimble::memory {

// Goes through time with those buffers that something later may still conflict with.
std::optional<Conflicts> Conflicts::find(const Liveness& buffers, std::span<const std::uint32_t> chosen,
                                         std::size_t most_pairs) {
  std::vector<std::uint32_t> by_first(chosen.begin(), chosen.end());
  std::stable_sort(by_first.begin(), by_first.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return buffers[a].first < buffers[b].first; });

  std::vector<std::uint32_t> earlier;  // the earlier conflicts of all, one list behind the other
  std::vector<std::size_t> earlier_end;
  std::vector<std::uint32_t> open, count(buffers.size());
  std::size_t looked_at = 0;
  for (std::uint32_t buffer : by_first) {
    const std::uint32_t now = buffers[buffer].first;
    std::erase_if(open, [&](std::uint32_t other) { return buffers[other].free_from <= now; });
    looked_at += open.size();
    if (looked_at > 4 * most_pairs) return std::nullopt;
    for (std::uint32_t other : open)
      if (buffers[other].last >= now || !buffers.before(other, buffer)) {
        earlier.push_back(other);
        ++count[other];
        ++count[buffer];
      }
    if (earlier.size() > most_pairs) return std::nullopt;
    earlier_end.push_back(earlier.size());
    open.push_back(buffer);
  }

  Conflicts conflicts;
  conflicts.begin_.resize(buffers.size() + 1);
  for (std::size_t b = 0; b < buffers.size(); ++b) conflicts.begin_[b + 1] = conflicts.begin_[b] + count[b];
  conflicts.others_.resize(2 * earlier.size());
  std::vector<std::uint32_t> next(conflicts.begin_.begin(), conflicts.begin_.end() - 1);
  for (std::size_t i = 0, e = 0; i < by_first.size(); ++i)
    for (; e < earlier_end[i]; ++e) {
      conflicts.others_[next[by_first[i]]++] = earlier[e];
      conflicts.others_[next[earlier[e]]++] = by_first[i];
    }
  return conflicts;
}

}  // namespace nimble::memory
