#include "nimble/torch/constant_folding.h"

#include <algorithm>
#include <vector>

#include "nimble/torch/fixed_buffers.h"

namespace nimble {
namespace {

// What may be constant: constants, and internal buffers whose value is at hand.
std::vector<bool> candidates(const Program& program, std::span<const at::Tensor> values) {
  std::vector<bool> constant(program.buffers.size());
  for (std::size_t b = 0; b < constant.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    // What is returned is the caller's to change, so it is made anew each time.
    constant[b] =
        buffer.kind == BufferKind::kConstant || (buffer.kind == BufferKind::kInternal && b < values.size() &&
                                                 values[b].defined() && !buffer.returned);
  }
  return constant;
}

}  // namespace

Program fold_constants(Program program, std::span<const at::Tensor> values) {
  const std::vector<bool> constant = fixed_buffers(program, candidates(program, values));
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
