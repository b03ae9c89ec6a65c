// In-place operators become out of place, so that each buffer is written by one task and patterns can be
// matched.
//
//   %1 = convolution(input0, …)            %1 = convolution(input0, …)
//   %1 = relu_(%1)                   ──▶   %2 = relu(%1)
//   %3 = add(%1, …)                        %3 = add(%2, …)
//
// The memory plan gives %2 the bytes of another buffer that is no longer needed, so this costs none.
//
// In training only those that fuse_pointwise can take in.

#include <ATen/ATen.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/pointwise_tasks.h"
#include "nimble/torch/rewrites/rename.h"
#include "nimble/torch/rewrites/try_alone.h"

namespace nimble {
namespace {

// The operator that does the same to a new tensor: takes the same arguments, returns what the other writes.
std::optional<c10::OperatorHandle> out_of_place(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  if (!name.starts_with("aten::") || !name.ends_with('_') || name.ends_with("__")) return std::nullopt;
  auto found = c10::Dispatcher::singleton().findSchema({name.substr(0, name.size() - 1), overload});
  if (!found || op.schema().returns().size() != 1 || found->schema().returns().size() != 1)
    return std::nullopt;
  const auto& before = op.schema().arguments();
  const auto& after = found->schema().arguments();
  if (before.size() != after.size()) return std::nullopt;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (*before[i].type() != *after[i].type() || before[i].name() != after[i].name()) return std::nullopt;
    if (is_written(op, i) != (i == 0) || is_written(*found, i)) return std::nullopt;
  }
  return found;
}

// All of the buffer that anybody ever looks at, each element once.
bool is_whole(const TensorRef& ref, const Buffer& buffer) {
  return static_cast<std::uint64_t>(ref.numel()) * c10::elementSize(ref.dtype) == buffer.bytes &&
         byte_range(ref).end == buffer.bytes && ref.offset == 0;
}

// The result has the type of the tensor that was written to (in place, it would be rounded to that). Found
// out with tensors of one element: in-place operators have the shape of what they write to anyway.
bool gives_the_same_type(const c10::OperatorHandle& op, const Task& task) {
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  torch::jit::Stack stack;
  for (const Operand& operand : task.arguments) {
    if (const auto* ref = std::get_if<TensorRef>(&operand)) {
      stack.emplace_back(at::ones(std::vector<std::int64_t>(ref->sizes.size(), 1), ref->dtype));
    } else if (const auto* value = std::get_if<c10::IValue>(&operand)) {
      stack.push_back(*value);
    } else {
      return false;
    }
  }
  try {
    op.callBoxed(&stack);
  } catch (const std::exception&) {
    return false;
  }
  return stack[0].toTensor().scalar_type() == std::get<TensorRef>(task.arguments[0]).dtype;
}

// Whether the same out of place could be part of an exact kernel, and gives a result that is laid out as what
// `task` writes to.
bool fits_training(const Program& program, const c10::OperatorHandle& functional, const Task& task) {
  if (!task.allocations.empty()) return false;  // more than its result: it may need that again
  Task alike = task;
  alike.op = functional;
  if (!keeps_bits(program, alike)) return false;
  try {
    try_alone(alike, program.buffers);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Rewritten apply(Program program, const RewriteContext& context) {
  Rewritten result{.program = std::move(program)};
  Program& edited = result.program;
  Names names;                                      // of what an in-place operator wrote: where it is now
  std::vector<bool> filled(edited.buffers.size());  // by buffer: some task wrote to it before
  for (std::uint32_t i = 0; i < edited.tasks.size(); ++i) {
    Task& task = edited.tasks[i];
    const auto functional = out_of_place(task.op);
    const auto* self = functional ? std::get_if<TensorRef>(&task.arguments[0]) : nullptr;
    const bool fits = self && edited.buffer(self->buffer).kind == BufferKind::kInternal && !task.draw &&
                      filled[self->buffer.index()] && is_whole(*self, edited.buffer(self->buffer)) &&
                      gives_the_same_type(*functional, task) &&
                      (!context.trains || fits_training(edited, *functional, task));
    for (const TensorRef& ref : task.writes) {
      if (ref.numel() > 0) filled[ref.buffer.index()] = true;
    }
    const TensorRef before = fits ? *self : TensorRef{};
    rename(task, names);
    if (fits) {
      result.sites.push_back(task_name(edited, TaskId{i}));
      const BufferId made{static_cast<std::uint32_t>(edited.buffers.size())};
      edited.buffers.push_back({.kind = BufferKind::kInternal,
                                .bytes = edited.buffer(before.buffer).bytes,
                                .device = edited.buffer(before.buffer).device});
      names.insert_or_assign(before.buffer, made);
      task.op = *functional;
      TensorRef written = before;
      written.buffer = made;
      written.requires_grad = false;
      task.results = {written};
      find_accesses(task);
      find_allocations(task, edited.buffers);
    }
  }
  rename_outputs(edited, names);
  return result;
}

}  // namespace

const Rewrite kOutOfPlace{
    .name = "out_of_place",
    .summary = "in-place operators on tensors of the program's own get a result of their own",
    .for_training = true,
    .exact = true,
    .always = true,
    .apply = apply};

}  // namespace nimble
