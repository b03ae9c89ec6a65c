#include "nimble/torch/rewrites/coming_kernels.h"

#include <ATen/ATen.h>

namespace nimble {
namespace {

c10::IValue without_memory(const Operand& operand) {
  if (const auto* ref = std::get_if<TensorRef>(&operand)) return without_memory(*ref);
  if (const auto* list = std::get_if<TensorRefList>(&operand)) {
    c10::List<at::Tensor> tensors;
    for (const auto& ref : list->refs) tensors.push_back(ref ? without_memory(*ref) : at::Tensor());
    return tensors;
  }
  return std::get<c10::IValue>(operand);
}

}  // namespace

kernels::Compiling compile_kernels_ahead(std::span<const Task> tasks, c10::Device device) {
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  std::vector<kernels::ComingCall> calls;
  for (const Task& task : tasks) {
    // Ours tell which kernels they need when they are called without memory.
    const bool tells = task.op.operator_name().name.starts_with("nimble::") &&
                       task.op.hasKernelForDispatchKey(c10::DispatchKey::Meta);
    if (!tells) continue;
    kernels::ComingCall& call = calls.emplace_back(kernels::ComingCall{task.op, {}});
    for (const Operand& operand : task.arguments) call.arguments.push_back(without_memory(operand));
  }
  return calls.empty() ? nullptr : kernels::compile_ahead(calls, device);
}

}  // namespace nimble
