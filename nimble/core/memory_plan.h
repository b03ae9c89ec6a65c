#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nimble/core/reachability.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// Memory that some tasks use and nobody needs before the first or after the last of them.
struct BufferSpec {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 1;  // a power of two
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
// the happens-before relation of the schedule (see happens_before_graph). `launch_order` is used for the
// lower bound and as a guide. Throws InvalidInput for an alignment that is no power of two, a buffer without
// uses, or sizes whose sum overflows.
MemoryPlan plan_memory(std::span<const BufferSpec> buffers, const Reachability& order,
                       std::span<const TaskId> launch_order);

}  // namespace nimble
