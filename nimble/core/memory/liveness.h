#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nimble/core/memory_plan.h"
#include "nimble/core/reachability.h"
#include "nimble/core/task_graph.h"

namespace nimble::memory {

// When one buffer holds something, in positions of the launch order.
struct Lifetime {
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 1;
  std::uint32_t first = 0, last = 0;  // its first and last use
  std::uint32_t free_from = 0;   // whatever is first used at or after this position comes after all its uses
  std::uint32_t free_until = 0;  // whatever is last used before this position comes before all its uses
  std::uint32_t last_heir = 0;   // nothing first used after this position comes after all its uses
  std::uint32_t first_ancestor = 0;  // nothing last used before this position comes before all its uses
};

// What the placement strategies know of the buffers: which of them may share bytes. On one stream a lifetime
// is all there is to it. On many streams the launch order is only one of the orders that can happen, so where
// the lifetimes do not decide, the first and last uses are looked up in the happens-before relation.
class Liveness {
 public:
  Liveness(std::span<const BufferSpec> buffers, const TaskGraph& order, std::span<const TaskId> launch_order);

  std::size_t size() const { return lifetimes_.size(); }
  std::uint32_t end() const { return end_; }  // how many positions there are
  const Lifetime& operator[](std::size_t buffer) const { return lifetimes_[buffer]; }

  // True if every use of `a` happens before every use of `b`, for an `a` with a.last < b.first. May say no
  // where the answer would take a search.
  bool before(std::uint32_t a, std::uint32_t b) const;

  // True if the lifetimes alone decide, as on one stream.
  bool is_sequential() const;

  // The same with time running backwards, for strategies that go through time in one direction.
  Liveness mirrored() const;

  // By buffer: the most bytes live together at any time of its life, when the tasks run one after the other.
  std::vector<std::uint64_t> most_bytes_beside() const;

  // By position: what is live when the tasks run one after the other.
  std::vector<std::uint64_t> bytes_live() const;

  // The most at any time: no plan on one stream needs less.
  std::uint64_t most_bytes_live() const;

  // The uses that no other use of the buffer comes before, or after. (Of a mirrored one as if it were not.)
  std::span<const TaskId> first_uses(std::uint32_t buffer) const;
  std::span<const TaskId> last_uses(std::uint32_t buffer) const;

 private:
  void find_extreme_uses(std::span<const BufferSpec> buffers, const std::vector<std::uint32_t>& position);

  std::uint32_t end_ = 0;
  bool is_mirrored_ = false;
  std::vector<Lifetime> lifetimes_;
  std::shared_ptr<const Reachability> order_;
  // The uses that no other use of the buffer comes before, or after: those of buffer b are at [begin[b],
  // begin[b + 1]).
  std::vector<std::uint32_t> first_begin_, last_begin_;
  std::vector<TaskId> first_uses_, last_uses_;
};

}  // namespace nimble::memory
