#include "nimble/torch/constant_folding.h"

#include <algorithm>
#include <vector>

namespace nimble {
namespace {

// Which buffers hold the same bytes at every call whenever a task that stays looks at them. Starts from every
// buffer whose value is at hand and takes back what turns out not to be so, until nothing changes.
std::vector<bool> constant_buffers(const Program& program, std::span<const at::Tensor> values) {
  std::vector<bool> constant(program.buffers.size());
  for (std::size_t b = 0; b < constant.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    // What is returned is the caller's to change, so it is made anew each time.
    constant[b] =
        buffer.kind == BufferKind::kConstant || (buffer.kind == BufferKind::kInternal && b < values.size() &&
                                                 values[b].defined() && !buffer.returned);
  }
  const auto folds = [&](const Task& task) {
    if (task.draw || task.writes.empty()) return false;
    for (const auto& ref : task.reads)
      if (!constant[ref.buffer.index()]) return false;
    for (const auto& ref : task.writes)
      if (!constant[ref.buffer.index()]) return false;
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<bool> seen_by_staying_task(program.buffers.size(), false);
    const auto take_back = [&](BufferId id) {
      changed |= constant[id.index()];
      constant[id.index()] = false;
    };
    for (const Task& task : program.tasks) {
      if (folds(task)) {
        // A staying task already looked: it must see the bytes from before this write.
        for (const auto& ref : task.writes)
          if (seen_by_staying_task[ref.buffer.index()]) take_back(ref.buffer);
      } else {
        for (const auto& ref : task.writes) take_back(ref.buffer);
        for (const auto& ref : task.reads) seen_by_staying_task[ref.buffer.index()] = true;
      }
    }
  }
  return constant;
}

}  // namespace

Program fold_constants(Program program, std::span<const at::Tensor> values) {
  const std::vector<bool> constant = constant_buffers(program, values);
  const auto folds = [&](const Task& task) {
    return !task.writes.empty() && std::ranges::all_of(task.writes, [&](const TensorRef& ref) {
      return constant[ref.buffer.index()];
    });
  };
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    if (!folds(task)) continue;
    program.notes.push_back({.what = "folded",
                             .subject = task_name(program, TaskId{i}),
                             .how = "done once, while recording: nothing but constants goes into it",
                             .where = task.where,
                             .module = task.module});
  }
  std::erase_if(program.tasks, folds);
  for (std::size_t b = 0; b < constant.size(); ++b) {
    Buffer& buffer = program.buffers[b];
    if (!constant[b] || buffer.kind == BufferKind::kConstant) continue;
    buffer.kind = BufferKind::kConstant;
    buffer.outside = values[b];
    buffer.address = values[b].storage().mutable_data();
  }
  return program;
}

}  // namespace nimble
