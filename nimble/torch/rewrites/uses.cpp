#include "nimble/torch/rewrites/uses.h"

#include <algorithm>

#include "nimble/torch/derivation.h"
#include "nimble/torch/operator_facts.h"

namespace nimble {
namespace {

// Whether two refs look at the same elements in the same way. Who made a tensor does not know yet that
// autograd will want gradients for it.
bool same_look(const TensorRef& made, TensorRef read) {
  read.requires_grad = made.requires_grad;
  return made == read;
}

}  // namespace

Uses::Uses(const Program& program)
    : program_(program),
      readers_(program.buffers.size()),
      writers_(program.buffers.size()),
      are_weights_(program.buffers.size()) {
  const auto add = [](std::vector<TaskId>& tasks, TaskId task) {
    if (tasks.empty() || tasks.back() != task) tasks.push_back(task);
  };
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    for (const TensorRef& ref : program.tasks[i].reads) add(readers_[ref.buffer.index()], TaskId{i});
    for (const TensorRef& ref : program.tasks[i].writes) add(writers_[ref.buffer.index()], TaskId{i});
  }
}

bool Uses::is_private(BufferId buffer) const {
  return program_.buffer(buffer).kind == BufferKind::kInternal && !program_.buffer(buffer).returned;
}

std::optional<TaskId> Uses::maker(const TensorRef& ref) const {
  if (program_.buffer(ref.buffer).kind != BufferKind::kInternal) return std::nullopt;
  const auto writers = this->writers(ref.buffer);
  if (writers.size() != 1) return std::nullopt;
  const Task& task = program_.task(writers[0]);
  const auto* result = task.results.empty() ? nullptr : std::get_if<TensorRef>(&task.results[0]);
  const bool whole = result && same_look(*result, ref);
  return whole ? std::optional(writers[0]) : std::nullopt;
}

std::optional<TaskId> Uses::only_reader(TaskId id) const {
  const Task& task = program_.task(id);
  const auto* result = task.results.empty() ? nullptr : std::get_if<TensorRef>(&task.results[0]);
  if (!result || maker(*result) != id || !is_private(result->buffer)) return std::nullopt;
  const auto readers = this->readers(result->buffer);
  if (readers.size() != 1) return std::nullopt;
  std::size_t looks = 0;
  for (const TensorRef& ref : program_.task(readers[0]).reads) {
    if (ref.buffer != result->buffer) continue;
    if (!same_look(*result, ref)) return std::nullopt;
    ++looks;
  }
  return looks == 1 ? std::optional(readers[0]) : std::nullopt;
}

bool Uses::can_move(TaskId task, TaskId later) const {
  for (const TensorRef& ref : program_.task(task).reads) {
    for (const TaskId writer : writers(ref.buffer)) {
      if (task < writer && writer < later) return false;
    }
  }
  return true;
}

bool Uses::is_there(const TensorRef& ref, TaskId task) const {
  return std::ranges::all_of(writers(ref.buffer), [&](TaskId writer) { return writer < task; });
}

bool Uses::never_rewritten(const TensorRef& ref) const {
  return writers(ref.buffer).size() <= (program_.buffer(ref.buffer).kind == BufferKind::kInternal ? 1u : 0u);
}

bool Uses::is_weight(const TensorRef& ref) const {
  // Asked once: what is computed from weights may read the same ones again and again.
  auto& known = are_weights_[ref.buffer.index()];
  if (!known) known = has_weights(ref.buffer);
  return *known;
}

bool Uses::makes_weights(const Task& task) const {
  return !task.writes.empty() &&
         std::ranges::all_of(task.writes, [&](const TensorRef& ref) { return is_weight(ref); });
}

bool Uses::has_weights(BufferId id) const {
  if (!writers(id).empty()) {
    // Computed from weights, by an earlier rewrite or by the user: as good as one.
    const auto writers = this->writers(id);
    if (writers.size() != 1 || !is_private(id)) return false;
    const Task& task = program_.task(writers[0]);
    if (task.draw || !only_computes(task.op) || task.reads.empty()) return false;
    for (const TensorRef& read : task.reads) {
      if (read.buffer == id || !is_weight(read)) return false;
    }
    return true;
  }
  const Buffer& buffer = program_.buffer(id);
  switch (buffer.kind) {
    case BufferKind::kConstant:
    case BufferKind::kDerived:
      return true;
    case BufferKind::kExternal:
      return counts_versions(buffer.outside);
    default:
      return false;
  }
}

bool is_call_of(const Task& task, std::string_view name) {
  return task.op.operator_name().name == name &&
         !(name.starts_with("aten::") && writes_to_what_it_is_given(task.op));
}

const TensorRef* tensor_argument(const Task& task, std::size_t n) {
  return std::get_if<TensorRef>(&task.arguments[n]);
}

const c10::IValue& value_argument(const Task& task, std::size_t n) {
  return std::get<c10::IValue>(task.arguments[n]);
}

const TensorRef& first_result(const Task& task) { return std::get<TensorRef>(task.results[0]); }

}  // namespace nimble
