#include "nimble/core/memory_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>

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

// The buffers with the greatest key first; equals stay in their order.
template <class Key>
std::vector<std::uint32_t> greatest_first(std::size_t count, Key key) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return key(a) > key(b); });
  return order;
}

memory::Placement place(const memory::Liveness& buffers, std::uint64_t lower_bound) {
  using namespace memory;
  Placement best = sweep_through_time(buffers);
  const auto good_enough = [&] { return best.arena_bytes <= lower_bound; };
  const auto offer = [&](Placement other) {
    if (other.arena_bytes < best.arena_bytes) best = std::move(other);
  };
  const auto length = [&](std::uint32_t b) { return buffers[b].last - buffers[b].first; };
  const auto bytes = [&](std::uint32_t b) { return buffers[b].bytes; };
  const auto area = [&](std::uint32_t b) { return static_cast<double>(bytes(b)) * (length(b) + 1.0); };

  if (!good_enough()) offer(sweep_through_time(buffers.mirrored()));
  if (!good_enough()) offer(stack_up(buffers, greatest_first(buffers.size(), length)));
  (void)area;
  return best;
}

}  // namespace

MemoryPlan plan_memory(std::span<const BufferSpec> buffers, const TaskGraph& order,
                       std::span<const TaskId> launch_order) {
  check(buffers, order, launch_order);
  const memory::Liveness liveness(buffers, order, launch_order);
  const std::uint64_t lower_bound = liveness.most_bytes_live();
  memory::Placement placement = place(liveness, lower_bound);
  return {std::move(placement.offsets), placement.arena_bytes, lower_bound};
}

}  // namespace nimble
