#include "nimble/core/memory_plan.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "nimble/core/error.h"
#include "nimble/core/memory/liveness.h"
#include "nimble/core/memory/placement.h"

namespace nimble {
namespace {

void check(std::span<const BufferSpec> buffers, const TaskGraph& order,
           std::span<const TaskId> launch_order) {
  std::vector<bool> launched(order.task_count());
  std::size_t in_order = 0;
  for (TaskId task : launch_order) {
    if (task.index() >= order.task_count() || launched[task.index()]) break;
    const auto before = order.predecessors(task);
    if (!std::all_of(before.begin(), before.end(), [&](TaskId t) { return launched[t.index()]; })) break;
    launched[task.index()] = true;
    ++in_order;
  }
  if (in_order != order.task_count() || in_order != launch_order.size())
    throw InvalidInput("[nimble::plan_memory] the launch order is wrong at position " +
                       std::to_string(in_order) + ": it must hold each of the " +
                       std::to_string(order.task_count()) + " tasks once, after all that happen before it");
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

MemoryPlan place_apart(std::span<const BufferSpec> buffers) {
  MemoryPlan plan;
  for (const BufferSpec& buffer : buffers) {
    const std::uint64_t offset = (plan.arena_bytes + buffer.alignment - 1) & ~(buffer.alignment - 1);
    plan.offsets.push_back(offset);
    plan.arena_bytes = offset + buffer.bytes;
  }
  plan.lower_bound = plan.arena_bytes;
  return plan;
}

}  // namespace nimble
