#include <algorithm>
#include <limits>
#include <numeric>

#include "nimble/core/memory/placement.h"

namespace nimble::memory {
namespace {

constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMostPieces =
    4096;  // more than this many idle pieces are not searched; the smallest are lost

// Bytes that no task launched later is going to use. They may be used again by a buffer whose uses come after
// all uses of the buffer that had them last, and so after those of every one that had them earlier.
struct Piece {
  std::uint64_t offset, bytes;
  std::uint32_t owner;  // the buffer that had them last; kNobody where anyone may have them

  std::uint64_t end() const { return offset + bytes; }
};

class Sweep {
 public:
  explicit Sweep(const Liveness& buffers)
      : buffers_(buffers), placement_{std::vector<std::uint64_t>(buffers.size()), 0} {}

  Placement run() && {
    std::vector<std::uint32_t> by_first, by_last;
    for (std::uint32_t b = 0; b < buffers_.size(); ++b)
      if (buffers_[b].bytes > 0) by_first.push_back(b);
    by_last = by_first;
    std::stable_sort(by_first.begin(), by_first.end(), [&](std::uint32_t a, std::uint32_t b) {
      return buffers_[a].first != buffers_[b].first ? buffers_[a].first < buffers_[b].first
                                                    : buffers_[a].bytes > buffers_[b].bytes;
    });
    std::stable_sort(by_last.begin(), by_last.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return buffers_[a].last < buffers_[b].last; });
    auto retiring = by_last.begin();
    for (std::uint32_t buffer : by_first) {
      for (; buffers_[*retiring].last < buffers_[buffer].first; ++retiring) retire(*retiring);
      place(buffer);
    }
    return std::move(placement_);
  }

 private:
  // A run of neighbouring pieces that one buffer may have: the pieces [first, last).
  struct Gap {
    std::size_t first = 0, last = 0;
    std::uint64_t offset = 0, end = 0;
  };

  void retire(std::uint32_t buffer) {
    const Lifetime& life = buffers_[buffer];
    if (life.last_heir <= life.last) return;
    const Piece piece{placement_.offsets[buffer], life.bytes, buffer};
    pieces_.insert(std::upper_bound(pieces_.begin(), pieces_.end(), piece,
                                    [](const Piece& a, const Piece& b) { return a.offset < b.offset; }),
                   piece);
  }

  // Forgets pieces that nobody can have any more and merges neighbours that anyone may have.
  void tidy(std::uint32_t now) {
    std::size_t kept = 0;
    for (Piece piece : pieces_) {
      if (piece.owner != kNobody && buffers_[piece.owner].last_heir < now) continue;
      if (piece.owner != kNobody && buffers_[piece.owner].free_from <= now) piece.owner = kNobody;
      if (kept > 0 && piece.owner == kNobody && pieces_[kept - 1].owner == kNobody &&
          pieces_[kept - 1].end() == piece.offset)
        pieces_[kept - 1].bytes += piece.bytes;
      else
        pieces_[kept++] = piece;
    }
    pieces_.resize(kept);
    if (kept > kMostPieces) lose_smallest();
  }

  void lose_smallest() {
    std::vector<std::uint64_t> sizes;
    for (const Piece& piece : pieces_) sizes.push_back(piece.bytes);
    const auto median = sizes.begin() + kMostPieces / 2;
    std::nth_element(sizes.begin(), median, sizes.end());
    std::erase_if(pieces_, [limit = *median](const Piece& piece) { return piece.bytes <= limit; });
  }

  void place(std::uint32_t buffer) {
    const Lifetime& life = buffers_[buffer];
    tidy(life.first);
    Gap best, gap;
    bool found = false;
    const auto offer = [&] {
      const std::uint64_t offset = align_up(gap.offset, life.alignment);
      const bool fits = gap.last > gap.first && offset + life.bytes <= gap.end;
      if (fits && (!found || gap.end - gap.offset < best.end - best.offset)) {
        best = gap;
        found = true;
      }
    };
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      const bool usable = piece.owner == kNobody || buffers_.before(piece.owner, buffer);
      if (usable && gap.last == i && gap.last > gap.first && gap.end == piece.offset) {
        gap.last = i + 1;
        gap.end = piece.end();
        continue;
      }
      offer();
      gap = usable ? Gap{i, i + 1, piece.offset, piece.end()} : Gap{};
    }
    offer();
    if (!found) {  // grow the arena, from the last gap if that reaches its end
      const bool at_top = gap.last > gap.first && gap.end == placement_.arena_bytes;
      best =
          at_top ? gap : Gap{pieces_.size(), pieces_.size(), placement_.arena_bytes, placement_.arena_bytes};
    }
    take(buffer, best);
  }

  // Gives the buffer the start of the gap; what is left over on either side stays with its owners.
  void take(std::uint32_t buffer, const Gap& gap) {
    const Lifetime& life = buffers_[buffer];
    const std::uint64_t offset = align_up(gap.offset, life.alignment), end = offset + life.bytes;
    left_over_.clear();
    for (std::size_t i = gap.first; i < gap.last; ++i) {
      const Piece& piece = pieces_[i];
      if (piece.offset < offset)
        left_over_.push_back({piece.offset, std::min(piece.end(), offset) - piece.offset, piece.owner});
      if (piece.end() > end) {
        const std::uint64_t start = std::max(piece.offset, end);
        left_over_.push_back({start, piece.end() - start, piece.owner});
      }
    }
    if (offset > placement_.arena_bytes)  // padding for the alignment
      left_over_.push_back({placement_.arena_bytes, offset - placement_.arena_bytes, kNobody});
    const auto first = pieces_.begin() + static_cast<std::ptrdiff_t>(gap.first);
    const auto after = pieces_.erase(first, pieces_.begin() + static_cast<std::ptrdiff_t>(gap.last));
    pieces_.insert(after, left_over_.begin(), left_over_.end());
    placement_.offsets[buffer] = offset;
    placement_.arena_bytes = std::max(placement_.arena_bytes, end);
  }

  const Liveness& buffers_;
  Placement placement_;
  std::vector<Piece> pieces_, left_over_;  // by offset
};

}  // namespace

Placement sweep_through_time(const Liveness& buffers) { return Sweep(buffers).run(); }

}  // namespace nimble::memory
