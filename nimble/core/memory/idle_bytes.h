#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "nimble/core/memory/liveness.h"

namespace nimble::memory {

// A range of bytes.
struct Gap {
  std::uint64_t offset = 0, end = 0;
  std::uint64_t bytes() const { return end - offset; }
};

// Bytes of a growing arena that no task launched from now on was going to use. A buffer may have them if its
// uses come after all uses of the buffer that had them last, their owner, and so after those of all that had
// them before. In time that is every buffer: then they are nobody's, and neighbours merge.
//
// O(log pieces) for each change; finding a gap adds a bounded number of looks at owned pieces.
class IdleBytes {
 public:
  explicit IdleBytes(const Liveness& buffers) : buffers_(buffers) {}

  // Time moves on to the position `now`.
  void advance(std::uint32_t now);

  // The owner's last use is over.
  void add(Gap gap, std::uint32_t owner);

  // The smallest gap found in which the buffer fits; else one at the end of the arena, which must then grow.
  Gap best_for(std::uint32_t buffer, std::uint64_t arena_bytes);

  // Takes [offset, end) out of `gap`, which best_for returned.
  void take(Gap gap, std::uint64_t offset, std::uint64_t end);

 private:
  static constexpr std::uint32_t kNobody = 0xffffffff;

  struct Piece {
    std::uint64_t end;
    std::uint32_t owner;
    std::uint64_t number;              // pieces with an owner are numbered as they come
    std::uint32_t seen_for = kNobody;  // the buffer that was last offered this piece
  };
  using Pieces = std::map<std::uint64_t, Piece>;  // by offset

  bool is_usable(const Piece& piece, std::uint32_t buffer) const {
    return piece.owner == kNobody || buffers_.before(piece.owner, buffer);
  }
  void add_free(Gap gap);
  Pieces::iterator remove(Pieces::iterator piece);
  Gap usable_around(Pieces::iterator piece, std::uint32_t buffer);

  const Liveness& buffers_;
  std::uint32_t now_ = 0;
  Pieces pieces_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> free_by_size_;  // size and offset of nobody's pieces
  std::map<std::uint64_t, Pieces::iterator> owned_;                 // by number: the others
  using Release = std::pair<std::uint32_t, std::uint64_t>;          // from which position, number
  std::priority_queue<Release, std::vector<Release>, std::greater<>> releases_;
  std::uint64_t next_number_ = 0;
};

}  // namespace nimble::memory
