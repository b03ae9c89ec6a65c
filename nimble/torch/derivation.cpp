#include "nimble/torch/derivation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_set>

#include "nimble/torch/interpreter.h"
#include "nimble/torch/packed.h"

namespace nimble {
namespace {

bool holds_packed(const Task& task) {
  return std::any_of(task.arguments.begin(), task.arguments.end(),
                     [](const Operand& operand) { return Packed::in(operand) != nullptr; });
}

void forget_packed(const Program& program) {
  for (const Task& task : program.tasks) {
    for (const Operand& operand : task.arguments) {
      if (Packed* packed = Packed::in(operand)) packed->forget();
    }
  }
}

}  // namespace

void derive(const Derivation& derivation) {
  const at::NoGradGuard no_grad;
  forget_packed(derivation.program);
  Interpreter interpreter(derivation.program, {});
  interpreter.run();
  const auto made = std::move(interpreter).outputs();
  for (std::size_t i = 0; i < made.size(); ++i) {
    const c10::InferenceMode ordinary(false);
    at::Tensor result = derivation.results[i];
    result.copy_(made[i]);
  }
}

void derive_all(const Program& program) {
  for (const auto& derivation : program.derivations) derive(*derivation);
  forget_packed(program);
}

std::vector<at::Tensor> derived_from(const Program& program) {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> known;
  const auto add = [&](const Buffer& buffer) {
    if (buffer.kind == BufferKind::kExternal && known.insert(buffer.outside.unsafeGetTensorImpl()).second) {
      tensors.push_back(buffer.outside);
    }
  };
  for (const auto& derivation : program.derivations) {
    for (const Task& task : derivation->program.tasks) {
      for (const TensorRef& ref : task.reads) add(derivation->program.buffer(ref.buffer));
    }
  }
  for (const Task& task : program.tasks) {
    if (!holds_packed(task)) continue;
    for (const TensorRef& ref : task.reads) add(program.buffer(ref.buffer));
  }
  return tensors;
}

bool counts_versions(const at::Tensor& tensor) { return !tensor.is_inference(); }

Versions::Versions(std::span<const at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !counts_versions(tensor)) continue;
    seen_.push_back({tensor.unsafeGetTensorImpl()->version_counter(), 0});
  }
  look();
}

bool Versions::unchanged() const {
  return std::all_of(seen_.begin(), seen_.end(),
                     [](const Seen& seen) { return seen.counter.current_version() == seen.version; });
}

void Versions::look() {
  for (Seen& seen : seen_) seen.version = seen.counter.current_version();
}

}  // namespace nimble
