#include "nimble/core/memory_plan.h"

#include <bit>

#include "nimble/core/error.h"
#include "nimble/core/memory/liveness.h"
#include "nimble/core/memory/placement.h"

namespace nimble {
namespace {

void check(std::span<const BufferSpec> buffers, const TaskGraph& order,
           std::span<const TaskId> launch_order) {
  if (launch_order.size() != order.task_count())
    throw InvalidInput("[nimble::plan_memory] a launch order of " + std::to_string(launch_order.size()) +
                       " tasks for a graph of " + std::to_string(order.task_count()));
  std::uint64_t sum = 0;
  for (const BufferSpec& buffer : buffers) {
    const auto refuse = [&](const std::string& why) {
      throw InvalidInput("[nimble::plan_memory] buffer \"" + buffer.name + "\": " + why);
    };
    if (!std::has_single_bit(buffer.alignment))
      refuse("an alignment of " + std::to_string(buffer.alignment) + " is no power of two");
    if (buffer.uses.empty()) refuse("no task uses it; leave it out");
    for (TaskId task : buffer.uses)
      if (task.index() >= order.task_count())
        refuse("used by task " + std::to_string(task.value) + ", but there are only " +
               std::to_string(order.task_count()) + " tasks");
    if (__builtin_add_overflow(sum, buffer.bytes, &sum) ||
        __builtin_add_overflow(sum, buffer.alignment, &sum))
      refuse("the sizes and alignments up to this one add up to 2^64 bytes or more");
  }
}

}  // namespace

MemoryPlan plan_memory(std::span<const BufferSpec> buffers, const TaskGraph& order,
                       std::span<const TaskId> launch_order) {
  check(buffers, order, launch_order);
  const memory::Liveness liveness(buffers, order, launch_order);
  const std::uint64_t lower_bound = liveness.most_bytes_live();
  memory::Placement placement = memory::best_placement(liveness, lower_bound);
  return {std::move(placement.offsets), placement.arena_bytes, lower_bound};
}

}  // namespace nimble
