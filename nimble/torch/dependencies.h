#pragma once

#include <span>
#include <vector>

#include "nimble/core/memory_plan.h"
#include "nimble/core/task_graph.h"
#include "nimble/torch/program.h"

namespace nimble {

// Which task must come before which. Two tasks are ordered as recorded if one writes bytes that the other
// reads or writes (read after write, write after read, write after write), or if both draw from the same CPU
// generator, whose sequence must stay eager's. CUDA generators count in recorded order whatever the streams
// do. `costs`, where given, are measured times by task.
TaskGraph dependencies(const Program& program, std::span<const Nanoseconds> costs = {});

// The buffers that a memory plan places: internal ones that stay inside, and scratch, on the program's
// device. `buffers[i]` is the program's buffer behind `specs[i]`.
struct MemoryDemand {
  std::vector<BufferSpec> specs;
  std::vector<BufferId> buffers;
  std::uint64_t total_bytes = 0;  // what it takes without any reuse
};
MemoryDemand memory_demand(const Program& program, std::uint64_t alignment);

// The same and what the program leaves outside (gradients): nobody needs that until a task makes it, and then
// it stays until the schedule, whose happens-before relation is `order`, is over.
MemoryDemand memory_demand_with_escaped(const Program& program, std::uint64_t alignment,
                                        const TaskGraph& order);

}  // namespace nimble
