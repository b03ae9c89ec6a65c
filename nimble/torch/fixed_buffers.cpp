#include "nimble/torch/fixed_buffers.h"

namespace nimble {

bool is_fixed(const Task& task, const std::vector<bool>& fixed) {
  if (task.draw || task.writes.empty()) return false;
  for (const auto& ref : task.reads)
    if (!fixed[ref.buffer.index()]) return false;
  for (const auto& ref : task.writes)
    if (!fixed[ref.buffer.index()]) return false;
  return true;
}

// Takes back what turns out not to be so, until nothing changes.
std::vector<bool> fixed_buffers(const Program& program, std::vector<bool> at_best) {
  std::vector<bool> fixed = std::move(at_best);
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<bool> seen_by_staying_task(program.buffers.size(), false);
    const auto take_back = [&](BufferId id) {
      changed |= fixed[id.index()];
      fixed[id.index()] = false;
    };
    for (const Task& task : program.tasks) {
      if (is_fixed(task, fixed)) {
        // A staying task already looked: it must see the bytes from before this write.
        for (const auto& ref : task.writes)
          if (seen_by_staying_task[ref.buffer.index()]) take_back(ref.buffer);
      } else {
        for (const auto& ref : task.writes) take_back(ref.buffer);
        for (const auto& ref : task.reads) seen_by_staying_task[ref.buffer.index()] = true;
      }
    }
  }
  return fixed;
}

}  // namespace nimble
