#include "nimble/torch/rewrites/pointwise_tasks.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nimble/kernels/element_source.h"
#include "nimble/kernels/kernel_source.h"
#include "nimble/torch/rewrites/cuda/sites.h"

namespace nimble {

std::string function_of(const Task& task) {
  const auto& [name, overload] = task.op.operator_name();
  const std::string bare = name.starts_with("aten::") ? name.substr(6) : "";
  return overload.empty() ? bare : bare + "." + overload;
}

bool can_be_step(const Program& program, const Uses& uses, const Task& task, bool allows_changes) {
  if (task.draw || task.results.empty() || !std::holds_alternative<TensorRef>(task.results[0])) return false;
  const TensorRef& result = first_result(task);
  const Buffer& buffer = program.buffer(result.buffer);
  if (result.numel() == 0 || buffer.kind != BufferKind::kInternal) return false;
  if (kernels::device_type(result.dtype).empty()) return false;  // a cast to a type that no kernel knows
  const TensorRef* first = task.arguments.empty() ? nullptr : tensor_argument(task, 0);
  if (!first || known_number(program, *first)) return false;
  const auto can_be_argument = [&](const Operand& operand) {
    if (known_number(program, operand)) return result.dtype == first->dtype;
    if (const auto* ref = std::get_if<TensorRef>(&operand)) {
      return !ref->conjugate && !ref->negative && !kernels::device_type(ref->dtype).empty() &&
             program.buffer(ref->buffer).device == buffer.device &&
             (allows_changes || uses.never_rewritten(*ref));
    }
    const auto* value = std::get_if<c10::IValue>(&operand);
    return value && (value->isNone() || value->isBool() || value->isInt() || value->isDouble() ||
                     value->isString() || value->isIntList() || value->isBoolList());
  };
  return std::all_of(task.arguments.begin(), task.arguments.end(), can_be_argument);
}

bool makes_one_tensor(const Program& program, const Uses& uses, const Task& task, bool allows_changes) {
  return can_be_step(program, uses, task, allows_changes) && task.results.size() == 1 &&
         task.writes.size() == 1 && task.writes[0] == first_result(task);
}

std::optional<c10::IValue> known_number(const Program& program, const Operand& operand) {
  at::Tensor wrapped;
  if (const auto* value = std::get_if<c10::IValue>(&operand)) {
    if (value->isTensor()) wrapped = value->toTensor();
  } else if (const auto* ref = std::get_if<TensorRef>(&operand)) {
    const Buffer& buffer = program.buffer(ref->buffer);
    const bool is_on_host = buffer.kind == BufferKind::kConstant && ref->sizes.empty() &&
                            buffer.device.is_cpu() && !program.device().is_cpu();
    if (is_on_host) wrapped = materialize(*ref, buffer.outside.storage());
  }
  if (!wrapped.defined()) return {};
  const c10::Scalar number = wrapped.item();
  if (number.isComplex()) return {};
  return number.isFloatingPoint() ? c10::IValue(number.toDouble())
         : number.isBoolean()     ? c10::IValue(number.toBool())
                                  : c10::IValue(number.toLong());
}

std::string function_of_number(const std::string& function) {
  constexpr std::string_view kOfTensor = ".Tensor";
  if (!function.ends_with(kOfTensor)) return "";
  return function.substr(0, function.size() - kOfTensor.size()) + ".Scalar";
}

kernels::Value input_of(std::vector<TensorRef>& inputs, TensorRef ref) {
  ref.requires_grad = false;  // which makes no difference to a kernel
  const auto known = std::find(inputs.begin(), inputs.end(), ref);
  const auto index = static_cast<std::size_t>(known - inputs.begin());
  if (known == inputs.end()) inputs.push_back(ref);
  return kernels::input(index);
}

bool keeps_bits(const Program& program, const Task& task) {
  const auto is_half = [](at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; };
  const auto result = first_result(task).dtype;
  // Neither whole numbers nor what is computed of true and false, for which PyTorch has other rules.
  const bool all_fit = std::ranges::all_of(task.reads, [&](const TensorRef& ref) {
    const bool rounds_twice = ref.dtype == at::kDouble && is_half(result);  // by way of float32, or not
    const bool is_mask = ref.dtype == at::kBool && c10::isFloatingType(result);
    return (c10::isFloatingType(ref.dtype) || is_mask) && !rounds_twice;
  });
  if (!all_fit || !(c10::isFloatingType(result) || result == at::kBool)) return false;
  std::vector<TensorRef> inputs;
  return kernels::has_exact_kernel(
      step_of(program, task, [&](const TensorRef& ref) { return input_of(inputs, ref); }));
}

bool belong_together(const Task& a, const Task& b) {
  // What a call had passed on its way through the dispatcher (state.excluded) depends on its operator, and
  // makes no difference to a kernel. What the way back computes, for a checkpoint again, stays there: made
  // beside what it reads it would have to be kept all the while.
  return a.node.empty() == b.node.empty() && a.part == b.part && a.step == b.step &&
         a.state.grad_mode == b.state.grad_mode && a.state.included == b.state.included;
}

}  // namespace nimble
