#include "nimble/torch/rewrites/try_alone.h"

#include <ATen/ATen.h>

#include "nimble/core/error.h"
#include "nimble/torch/bind_operand.h"

namespace nimble {
namespace {

void expect_form(const at::Tensor& tensor, const TensorRef& ref, const Task& task) {
  if (tensor.sizes() == at::IntArrayRef(ref.sizes) && tensor.strides() == at::IntArrayRef(ref.strides) &&
      tensor.scalar_type() == ref.dtype) {
    return;
  }
  throw Error("[nimble::rewrite] " + task.op.operator_name().name + " gives " +
              to_string(describe(tensor, ref.buffer)) + " where " + to_string(ref) + " was expected");
}

}  // namespace

void try_alone(const Task& task, std::span<const Buffer> buffers) {
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  const auto made_up = [&](const TensorRef& ref) {
    return at::empty_strided(ref.sizes, ref.strides,
                             at::TensorOptions(buffers[ref.buffer.index()].device).dtype(ref.dtype));
  };
  torch::jit::Stack stack;
  for (const Operand& operand : task.arguments) stack.push_back(bind_operand(operand, made_up));
  ThreadStateGuard state;
  state.enter(task.state);
  task.op.callBoxed(&stack);
  for (std::size_t r = 0; r < task.results.size(); ++r) {
    if (const auto* ref = std::get_if<TensorRef>(&task.results[r])) {
      expect_form(stack[r].toTensor(), *ref, task);
    } else if (const auto* list = std::get_if<TensorRefList>(&task.results[r])) {
      for (std::size_t e = 0; e < list->refs.size(); ++e) {
        if (list->refs[e]) expect_form(stack[r].toListRef()[e].toTensor(), *list->refs[e], task);
      }
    }
  }
}

}  // namespace nimble
