#include "nimble/torch/rewrites/try_alone.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nimble/core/error.h"
#include "nimble/torch/bind_operand.h"
#include "nimble/torch/rewrites/unrun_convolution.h"

namespace nimble {
namespace {

void expect_form(const at::Tensor& tensor, const TensorRef& ref, const Task& task) {
  const TensorRef actual = describe(tensor, ref.buffer);
  if (same_form(actual, ref)) return;
  throw Error("[nimble::rewrite] " + task.op.operator_name().name + " gives " + to_string(actual) +
              " where " + to_string(ref) + " was expected");
}

struct Given {
  BufferId buffer;
  at::Tensor tensor;
};

// A view of an argument where the task says that it makes something.
void expect_no_view(const at::Tensor& tensor, const TensorRef& ref, std::span<const Given> given,
                    const Task& task) {
  const bool is_given =
      std::ranges::any_of(given, [&](const Given& one) { return tensor.is_alias_of(one.tensor); });
  const bool said_to_be = std::ranges::find(given, ref.buffer, &Given::buffer) != given.end();
  if (is_given && !said_to_be)
    throw Error("[nimble::rewrite] " + task.op.operator_name().name + " gives a view");
}

}  // namespace

void try_alone(const Task& task, std::span<const Buffer> buffers) {
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  std::vector<Given> given;
  const auto made_up = [&](const TensorRef& ref) {
    const auto options = at::TensorOptions(buffers[ref.buffer.index()].device).dtype(ref.dtype);
    given.push_back({ref.buffer, at::empty_strided(ref.sizes, ref.strides, options)});
    return given.back().tensor;
  };
  torch::jit::Stack stack;
  for (const Operand& operand : task.arguments) stack.push_back(bind_operand(operand, made_up));
  ThreadStateGuard state;
  state.enter(task.state);
  const bool on_gpu = !given.empty() && given.front().tensor.is_cuda();
  (on_gpu ? unrun(task.op) : task.op).callBoxed(&stack);
  const auto expect = [&](const at::Tensor& tensor, const TensorRef& ref) {
    expect_form(tensor, ref, task);
    expect_no_view(tensor, ref, given, task);
  };
  for (std::size_t r = 0; r < task.results.size(); ++r) {
    if (const auto* ref = std::get_if<TensorRef>(&task.results[r])) {
      expect(stack[r].toTensor(), *ref);
    } else if (const auto* list = std::get_if<TensorRefList>(&task.results[r])) {
      for (std::size_t e = 0; e < list->refs.size(); ++e) {
        if (list->refs[e]) expect(stack[r].toListRef()[e].toTensor(), *list->refs[e]);
      }
    }
  }
}

}  // namespace nimble
