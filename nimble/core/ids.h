#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace nimble {

// An index that knows what it indexes, so that a task cannot be passed where a stream is meant.
// Ids are dense: the ids of n tasks are 0 … n-1, in the order in which the tasks were added.
template <class Tag>
struct Id {
  std::uint32_t value = 0;

  constexpr std::size_t index() const { return value; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using TaskId = Id<struct TaskTag>;
using BufferId = Id<struct BufferTag>;
using StreamId = Id<struct StreamTag>;
using EventId = Id<struct EventTag>;

}  // namespace nimble

template <class Tag>
struct std::hash<nimble::Id<Tag>> {
  std::size_t operator()(nimble::Id<Tag> id) const noexcept { return id.value; }
};
