#include "nimble/core/memory/placement.h"

#include <algorithm>
#include <utility>

namespace nimble::memory {
namespace {

constexpr std::size_t kMostPairs = 24'000'000;  // of conflicting buffers: 200 MB, a second to fill gaps
constexpr std::size_t kMostVisits = 500'000;    // of pairs, in tries beyond the first: a few milliseconds
constexpr std::size_t kMostRepairVisits = 2'000'000;  // of pairs, for each order that is repaired
constexpr std::size_t kMostRepairs = 40;

using Order = std::vector<std::uint32_t>;

// Equals stay in their order.
template <class Key>
Order greatest_first(Order order, Key key) {
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return key(a) > key(b); });
  return order;
}

// Where all conflicts are too many, those among the large buffers are not, and these hold most of the bytes:
// the large ones fill gaps, the small ones are swept into an arena of their own above.
std::optional<Placement> fill_gaps_with_largest(const Liveness& buffers, const Order& by_size) {
  for (std::size_t count = by_size.size() / 2; count > 0; count /= 2) {
    const std::span largest = std::span(by_size).first(count), rest = std::span(by_size).subspan(count);
    const auto conflicts = Conflicts::find(buffers, largest, kMostPairs);
    if (!conflicts) continue;
    Placement placement = fill_gaps(buffers, *conflicts, largest);
    const Placement above = sweep_through_time(buffers, rest);
    std::uint64_t alignment = 1;
    for (std::uint32_t b : rest) alignment = std::max(alignment, buffers[b].alignment);
    const std::uint64_t base = align_up(placement.arena_bytes, alignment);
    for (std::uint32_t b : rest) placement.offsets[b] = base + above.offsets[b];
    placement.arena_bytes = base + above.arena_bytes;
    return placement;
  }
  return std::nullopt;
}

// Fills gaps again and again, each time with that buffer first which stuck out the last time.
Placement repair(const Liveness& buffers, const Conflicts& conflicts, Order order, std::uint64_t good) {
  Placement best = fill_gaps(buffers, conflicts, order), last = best;
  const std::size_t repairs = std::min(kMostRepairs, kMostRepairVisits / (conflicts.pair_count() + 1));
  for (std::size_t i = 0; i < repairs && best.arena_bytes > good; ++i) {
    std::stable_partition(order.begin(), order.end(), [&](std::uint32_t b) {
      return last.offsets[b] + buffers[b].bytes == last.arena_bytes;
    });
    last = fill_gaps(buffers, conflicts, order);
    if (last.arena_bytes < best.arena_bytes) best = last;
  }
  return best;
}

}  // namespace

Placement best_placement(const Liveness& buffers, std::uint64_t enough) {
  Order all;
  for (std::uint32_t b = 0; b < buffers.size(); ++b)
    if (buffers[b].bytes > 0) all.push_back(b);
  const auto size = [&](std::uint32_t b) { return buffers[b].bytes; };
  const auto length = [&](std::uint32_t b) { return buffers[b].last - buffers[b].first + 1; };
  const auto area = [&](std::uint32_t b) { return static_cast<double>(size(b)) * length(b); };
  const Order by_size = greatest_first(all, size), by_length = greatest_first(all, length);
  const auto conflicts = Conflicts::find(buffers, by_size, kMostPairs);

  std::optional<Placement> best;
  const auto offer = [&](Placement other) {
    if (!best || other.arena_bytes < best->arena_bytes) best = std::move(other);
    return best->arena_bytes <= enough;
  };
  if (conflicts) {
    if (offer(fill_gaps(buffers, *conflicts, by_size))) return *best;
    if (3 * conflicts->pair_count() <= kMostVisits) {
      offer(fill_gaps(buffers, *conflicts, greatest_first(by_length, size)));
      offer(fill_gaps(buffers, *conflicts, by_length));
      offer(fill_gaps(buffers, *conflicts, greatest_first(all, area)));
    }
  }
  if (!buffers.is_sequential()) return best ? *best : sweep_through_time(buffers, all);

  // On one stream the bound can be met, or nearly: there it is worth trying harder.
  if (offer(sweep_through_time(buffers, all)) || offer(sweep_through_time(buffers.mirrored(), all)))
    return *best;
  const std::uint64_t good = enough + enough / 20;
  if (best->arena_bytes <= good) return *best;
  if (!conflicts) {
    if (auto placement = fill_gaps_with_largest(buffers, by_size)) offer(std::move(*placement));
    return *best;
  }
  const std::vector<std::uint64_t> beside = buffers.most_bytes_beside();
  const auto crowded = [&](std::uint32_t b) { return beside[b]; };
  const auto crowded_size = [&](std::uint32_t b) {
    return static_cast<double>(size(b)) * static_cast<double>(beside[b]);
  };
  for (const Order& order : {by_size, greatest_first(all, crowded_size), greatest_first(by_length, crowded),
                             greatest_first(all, area), by_length})
    if (best->arena_bytes > good) offer(repair(buffers, *conflicts, order, good));
  return *best;
}

}  // namespace nimble::memory
