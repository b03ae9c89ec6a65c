#include "nimble/torch/dependencies.h"

#include <ATen/core/Generator.h>

#include <algorithm>
#include <map>

namespace nimble {
namespace {

struct Access {
  TaskId task;
  TensorRef ref;
};

// Who touched a buffer since it was last overwritten whole.
struct History {
  std::vector<Access> writes, reads;
};

}  // namespace

TaskGraph dependencies(const Program& program, std::span<const Nanoseconds> costs) {
  TaskGraphBuilder builder;
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const auto cost = i < costs.size() ? std::optional(costs[i]) : std::nullopt;
    builder.add_task(task_name(program, TaskId{i}), cost);
  }
  std::vector<History> histories(program.buffers.size());
  std::map<const c10::GeneratorImpl*, TaskId> last_draw;
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId id{i};
    const Task& task = program.tasks[i];
    const auto wait_for = [&](const std::vector<Access>& accesses, const TensorRef& ref) {
      for (const Access& access : accesses) {
        if (access.task != id && may_overlap(access.ref, ref)) builder.add_edge(access.task, id);
      }
    };
    for (const TensorRef& ref : task.reads) wait_for(histories[ref.buffer.index()].writes, ref);
    for (const TensorRef& ref : task.writes) {
      History& history = histories[ref.buffer.index()];
      wait_for(history.writes, ref);
      wait_for(history.reads, ref);
      // Whoever comes later waits for this task, and so for what it overwrote.
      const auto is_covered = [&](const Access& access) { return covers(ref, access.ref); };
      std::erase_if(history.writes, is_covered);
      std::erase_if(history.reads, is_covered);
      history.writes.push_back({id, ref});
    }
    for (const TensorRef& ref : task.reads) histories[ref.buffer.index()].reads.push_back({id, ref});
    // A CPU generator is one state that every draw changes; on a GPU each task is told where it begins.
    if (task.draw && task.draw->generator.device().is_cpu()) {
      const auto [previous, first] = last_draw.try_emplace(task.draw->generator.unsafeGetGeneratorImpl(), id);
      if (!first) builder.add_edge(std::exchange(previous->second, id), id);
    }
  }
  return std::move(builder).build();
}

namespace {

// By buffer: the tasks that look at it, in order.
std::vector<std::vector<TaskId>> uses_of_buffers(const Program& program) {
  std::vector<std::vector<TaskId>> uses(program.buffers.size());
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    const auto use = [&](BufferId buffer) {
      auto& list = uses[buffer.index()];
      if (list.empty() || list.back() != TaskId{i}) list.push_back(TaskId{i});
    };
    for (const TensorRef& ref : task.reads) use(ref.buffer);
    for (const TensorRef& ref : task.writes) use(ref.buffer);
    for (const Allocation& allocation : task.allocations) use(allocation.buffer);
  }
  return uses;
}

template <class IsPlanned>
void add_planned(MemoryDemand& demand, const Program& program, std::uint64_t alignment,
                 IsPlanned&& is_planned, std::span<const TaskId> ends = {}) {
  auto uses = uses_of_buffers(program);
  const c10::Device device = program.device();
  for (std::uint32_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (!is_planned(buffer) || buffer.device != device || buffer.bytes == 0 || uses[b].empty()) continue;
    // Nothing can come after a use that nothing comes after, so that the buffer is never taken back; and
    // since that use comes after another, it may be taken from others as early as before.
    if (!ends.empty()) {
      const TaskId end = ends[uses[b].back().index()];
      if (std::find(uses[b].begin(), uses[b].end(), end) == uses[b].end()) uses[b].push_back(end);
    }
    demand.specs.push_back({"%" + std::to_string(b), buffer.bytes, alignment, std::move(uses[b])});
    demand.buffers.push_back(BufferId{b});
    demand.total_bytes += buffer.bytes;
  }
}

// By task: one that comes after it, or is it, and that nothing comes after.
std::vector<TaskId> ends_of(const TaskGraph& order) {
  std::vector<TaskId> ends(order.task_count());
  const auto tasks = order.topological_order();
  for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
    const auto after = order.successors(*task);
    ends[task->index()] = after.empty() ? *task : ends[after.front().index()];
  }
  return ends;
}

}  // namespace

MemoryDemand memory_demand(const Program& program, std::uint64_t alignment) {
  MemoryDemand demand;
  add_planned(demand, program, alignment, [](const Buffer& buffer) {
    return buffer.kind == BufferKind::kScratch || (buffer.kind == BufferKind::kInternal && !buffer.returned);
  });
  return demand;
}

MemoryDemand memory_demand_with_escaped(const Program& program, std::uint64_t alignment,
                                        const TaskGraph& order) {
  MemoryDemand demand = memory_demand(program, alignment);
  const auto escapes = [](const Buffer& buffer) { return buffer.kind == BufferKind::kEscaped; };
  add_planned(demand, program, alignment, escapes, ends_of(order));
  return demand;
}

}  // namespace nimble
