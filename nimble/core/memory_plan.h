#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nimble/core/task_graph.h"

namespace nimble {

// Memory that some tasks use and nobody needs before the first or after the last of them.
struct BufferSpec {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 1;  // a power of two; the arena itself must be aligned to the largest
  std::vector<TaskId> uses;     // at least one, without repeats
  friend bool operator==(const BufferSpec&, const BufferSpec&) = default;
};

struct MemoryPlan {
  std::vector<std::uint64_t> offsets;  // by buffer, from the start of the arena
  std::uint64_t arena_bytes = 0;
  std::uint64_t lower_bound = 0;  // most bytes live together when the tasks run one after the other
  friend bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

// Gives two buffers the same bytes only if every use of one happens before every use of the other in `order`,
// the happens-before relation of the schedule (see happens_before_graph). `launch_order`, a topological order
// of it, sets the lower bound and guides the search for a small arena: on one stream the result is mostly the
// bound itself, on many streams more must be kept apart.
//
// Deterministic. O(tasks * width) memory, and about O((tasks + buffers) * width) time, where width is how
// many tasks can run side by side. Throws InvalidInput for a launch order that is not one of all tasks, an
// alignment that is no power of two, a buffer without uses or with an unknown one, or sizes and alignments
// whose sum overflows.
MemoryPlan plan_memory(std::span<const BufferSpec> buffers, const TaskGraph& order,
                       std::span<const TaskId> launch_order);

// Every buffer in bytes of its own, one behind the other: what `plan_memory` saves, measured by leaving it
// out. Takes buffers that `plan_memory` has accepted; the lower bound is all of them.
MemoryPlan place_apart(std::span<const BufferSpec> buffers);

}  // namespace nimble
