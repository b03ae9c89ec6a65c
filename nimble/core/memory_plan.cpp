#include "nimble/core/memory_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "nimble/core/error.h"

namespace nimble {
namespace {

void check(std::span<const BufferSpec> buffers, std::size_t task_count) {
  std::uint64_t sum = 0;
  for (const BufferSpec& buffer : buffers) {
    const auto refuse = [&](const std::string& why) {
      throw InvalidInput("[nimble::plan_memory] buffer \"" + buffer.name + "\": " + why);
    };
    if (!std::has_single_bit(buffer.alignment))
      refuse("an alignment of " + std::to_string(buffer.alignment) + " is no power of two");
    if (buffer.uses.empty()) refuse("no task uses it; leave it out");
    for (TaskId task : buffer.uses)
      if (task.index() >= task_count)
        refuse("used by task " + std::to_string(task.value) + ", which is unknown");
    if (__builtin_add_overflow(sum, buffer.bytes, &sum) ||
        __builtin_add_overflow(sum, buffer.alignment, &sum))
      refuse("the sizes and alignments up to here add up to more than 2^64 bytes");
  }
}

}  // namespace

MemoryPlan plan_memory(std::span<const BufferSpec> buffers, const Reachability& order,
                       std::span<const TaskId> launch_order) {
  check(buffers, launch_order.size());
  const auto position = positions_in(launch_order);
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<std::int64_t> change(launch_order.size() + 1);
  for (const BufferSpec& b : buffers) {
    std::uint32_t first = ~0u, last = 0;
    for (TaskId t : b.uses)
      first = std::min(first, position[t.index()]), last = std::max(last, position[t.index()]);
    change[first] += static_cast<std::int64_t>(b.bytes);
    change[last + 1] -= static_cast<std::int64_t>(b.bytes);
  }
  std::int64_t live = 0;
  for (std::int64_t c : change)
    plan.lower_bound = std::max(plan.lower_bound, static_cast<std::uint64_t>(live += c));

  const auto before = [&](const BufferSpec& a, const BufferSpec& b) {
    for (TaskId x : a.uses)
      for (TaskId y : b.uses)
        if (!order.happens_before(x, y)) return false;
    return true;
  };
  std::vector<std::uint32_t> by_size(buffers.size()), placed;
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](auto a, auto b) { return buffers[a].bytes > buffers[b].bytes; });
  for (std::uint32_t b : by_size) {
    if (buffers[b].bytes == 0) continue;
    const auto aligned = [&](std::uint64_t x) {
      return (x + buffers[b].alignment - 1) & ~(buffers[b].alignment - 1);
    };
    std::uint64_t offset = 0;
    for (std::uint32_t a : placed) {
      if (plan.offsets[a] >= offset + buffers[b].bytes || plan.offsets[a] + buffers[a].bytes <= offset)
        continue;
      if (before(buffers[a], buffers[b]) || before(buffers[b], buffers[a])) continue;
      offset = aligned(plan.offsets[a] + buffers[a].bytes);
    }
    plan.offsets[b] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + buffers[b].bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                   [&](auto x, auto y) { return plan.offsets[x] < plan.offsets[y]; }),
                  b);
  }
  return plan;
}

}  // namespace nimble
