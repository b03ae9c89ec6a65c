// An activation behind a concatenation moves to the parts, where it can become part of what makes them.
//
//   %2 = cat(%0, %1)                       %4 = relu(%0)
//   %3 = relu(%2)                    ──▶   %5 = relu(%1)
//                                          %3 = cat(%4, %5)

#include <ATen/ATen.h>

#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

// Its result at a place depends on nothing but its one tensor there, so it may run before or behind a cat. It
// may round otherwise: where vectors end, ATen's kernels on the CPU compute exponentials one by one.
bool may_move(const Task& task) {
  if (!task.op.operator_name().overload_name.empty())
    return false;  // takes more tensors, or a place to write
  for (const char* name : {"aten::relu", "aten::leaky_relu", "aten::hardtanh", "aten::clamp", "aten::gelu",
                           "aten::silu", "aten::hardswish", "aten::sigmoid", "aten::tanh"}) {
    if (is_call_of(task, name)) return true;
  }
  return false;
}

// Only where it can become part of the task that makes it: otherwise one launch would become many.
bool helps(const Program& program, const Uses& uses, const TensorRef& part) {
  const auto maker = uses.maker(part);
  if (!maker) return false;
  for (const char* name : {"aten::convolution", "aten::add", "aten::addmm", "aten::mul"}) {
    if (is_call_of(program.task(*maker), name)) return true;
  }
  return false;
}

Rewritten apply(Program program, const RewriteContext&) {
  const Uses uses(program);
  Edit edit(program);
  Rewritten result{.program = {}};
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId cat{i};
    const Task& task = program.task(cat);
    if (!is_call_of(task, "aten::cat")) continue;
    const auto reader = uses.only_reader(cat);
    if (!reader || !may_move(program.task(*reader)) || edit.touches(*reader)) continue;
    const Task& activation = program.task(*reader);
    TensorRefList parts = std::get<TensorRefList>(task.arguments[0]);
    std::size_t helped = 0;
    bool alike = true;
    for (const auto& part : parts.refs) {
      helped += helps(program, uses, *part) ? 1 : 0;
      alike &= part->dtype == first_result(task).dtype;
      alike &= part->sizes.size() == first_result(task).sizes.size();
    }
    if (2 * helped < parts.refs.size() || !alike) continue;
    for (auto& part : parts.refs) {
      TensorRef made = edit.new_tensor(part->sizes, part->dtype, program.buffer(part->buffer).device);
      std::vector<Operand> arguments = activation.arguments;
      arguments[0] = *part;
      edit.insert(cat, activation.op, std::move(arguments), {made});
      part = made;
    }
    edit.replace(cat, task.op, {parts, task.arguments[1]}, activation.results);
    edit.drop(*reader);
    result.sites.push_back(task_name(program, *reader) + " before " + task_name(program, cat));
  }
  result.program = std::move(edit).finish();
  return result;
}

}  // namespace

const Rewrite kReluThroughCat{
    .name = "relu_through_cat",
    .summary = "an activation behind a concatenation moves to the parts, where it can fuse",
    .apply = apply};

}  // namespace nimble
