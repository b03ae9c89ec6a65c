#include "nimble/core/memory/idle_bytes.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "nimble/core/memory/placement.h"

namespace nimble::memory {
namespace {

constexpr std::size_t kMostTries = 16;   // of free pieces, smallest first, for one buffer
constexpr std::size_t kMostLooks = 256;  // at owned pieces, newest first

bool fits(Gap gap, const Lifetime& life) {
  return align_up(gap.offset, life.alignment) + life.bytes <= gap.end;
}

}  // namespace

void IdleBytes::advance(std::uint32_t now) {
  now_ = now;
  for (; !releases_.empty() && releases_.top().first <= now; releases_.pop()) {
    const auto owned = owned_.find(releases_.top().second);
    if (owned == owned_.end()) continue;  // taken in the meantime
    const auto piece = owned->second;
    const Gap gap{piece->first, piece->second.end};
    remove(piece);
    add_free(gap);
  }
}

void IdleBytes::add(Gap gap, std::uint32_t owner) {
  const Lifetime& life = buffers_[owner];
  if (life.last_heir <= now_) return;  // nobody can ever have them
  if (life.free_from <= now_) return add_free(gap);
  const auto piece = pieces_.insert({gap.offset, {gap.end, owner, next_number_}}).first;
  owned_.insert(owned_.end(), {next_number_, piece});
  releases_.push({life.free_from, next_number_});
  ++next_number_;
}

void IdleBytes::add_free(Gap gap) {
  auto next = pieces_.lower_bound(gap.offset);
  if (next != pieces_.end() && next->first == gap.end && next->second.owner == kNobody) {
    gap.end = next->second.end;
    next = remove(next);
  }
  if (next != pieces_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second.end == gap.offset && previous->second.owner == kNobody) {
      gap.offset = previous->first;
      remove(previous);
    }
  }
  pieces_.insert({gap.offset, {gap.end, kNobody, 0}});
  free_by_size_.insert({gap.bytes(), gap.offset});
}

IdleBytes::Pieces::iterator IdleBytes::remove(Pieces::iterator piece) {
  const auto& [offset, what] = *piece;
  if (what.owner == kNobody)
    free_by_size_.erase({what.end - offset, offset});
  else
    owned_.erase(what.number);
  return pieces_.erase(piece);
}

// Neighbouring pieces around `piece` that the buffer may have: as many as it takes to fit, or all there are.
Gap IdleBytes::usable_around(Pieces::iterator piece, std::uint32_t buffer) {
  const Lifetime& life = buffers_[buffer];
  const auto usable = [&](Pieces::iterator other) {
    if (!is_usable(other->second, buffer)) return false;
    other->second.seen_for = buffer;
    return true;
  };
  piece->second.seen_for = buffer;
  Gap gap{piece->first, piece->second.end};
  for (auto right = std::next(piece); right != pieces_.end() && !fits(gap, life); ++right) {
    if (right->first != gap.end || !usable(right)) break;
    gap.end = right->second.end;
  }
  for (auto left = piece; left != pieces_.begin() && !fits(gap, life);) {
    --left;
    if (left->second.end != gap.offset || !usable(left)) break;
    gap.offset = left->first;
  }
  return gap;
}

Gap IdleBytes::best_for(std::uint32_t buffer, std::uint64_t arena_bytes) {
  const Lifetime& life = buffers_[buffer];
  std::optional<Gap> best;
  const auto offer = [&](Gap gap) {
    if (fits(gap, life) && (!best || gap.bytes() < best->bytes())) best = gap;
  };
  // The smallest pieces may be badly aligned; one with room for the padding always fits.
  auto free = free_by_size_.lower_bound({life.bytes, 0});
  for (std::size_t tries = 0; tries < kMostTries && free != free_by_size_.end() && !best; ++tries, ++free)
    offer({free->second, free->second + free->first});
  if (!best) free = free_by_size_.lower_bound({life.bytes + life.alignment - 1, 0});
  if (!best && free != free_by_size_.end()) offer({free->second, free->second + free->first});

  std::size_t looks = 0;
  for (auto owned = owned_.end(); owned != owned_.begin() && looks < kMostLooks; ++looks) {
    if (best && best->bytes() == life.bytes) break;  // there is no better fit
    --owned;
    const auto piece = owned->second;
    if (buffers_[piece->second.owner].last_heir < now_) {
      pieces_.erase(piece);
      owned = owned_.erase(owned);
    } else if (piece->second.seen_for != buffer && is_usable(piece->second, buffer)) {
      offer(usable_around(piece, buffer));
    }
  }
  if (best) return *best;
  if (!pieces_.empty()) {
    const auto top = std::prev(pieces_.end());
    if (top->second.end == arena_bytes && is_usable(top->second, buffer)) return usable_around(top, buffer);
  }
  return {arena_bytes, arena_bytes};
}

void IdleBytes::take(Gap gap, std::uint64_t offset, std::uint64_t end) {
  auto piece = pieces_.lower_bound(gap.offset);
  while (piece != pieces_.end() && piece->first < std::min(end, gap.end)) {
    const Gap whole{piece->first, piece->second.end};
    if (whole.end <= offset) {  // before the aligned start
      ++piece;
      continue;
    }
    const std::uint32_t owner = piece->second.owner;
    piece = remove(piece);
    const auto put_back = [&](Gap left_over) {
      if (left_over.offset < left_over.end) owner == kNobody ? add_free(left_over) : add(left_over, owner);
    };
    put_back({whole.offset, std::min(whole.end, offset)});
    put_back({std::max(whole.offset, end), whole.end});
  }
  if (offset > gap.end) add_free({gap.end, offset});  // the arena grows, and starts with padding
}

}  // namespace nimble::memory
