#include "nimble/torch/rewrites/convolution_settings.h"

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/convolution.h"
#include "nimble/torch/rewrites/uses.h"
#include "nimble/torch/tf32.h"

namespace nimble {
namespace {

using namespace convolution;

const c10::OperatorHandle& by_settings() {
  static const auto op = find_operator("aten::convolution");
  return op;
}
const c10::OperatorHandle& as_told() {
  static const auto op = find_operator("aten::_convolution");
  return op;
}

// The same convolution, told what the settings are now but for one of them, which is switched off.
Task without(Argument setting, Task task) {
  if (task.op == by_settings()) {
    const auto& settings = at::globalContext();
    task.op = as_told();
    for (const bool value :
         {settings.benchmarkCuDNN(), settings.deterministicCuDNN() || settings.deterministicAlgorithms(),
          settings.userEnabledCuDNN(), allows_tf32(at::Float32Op::CONV)}) {
      task.arguments.emplace_back(c10::IValue(value));
    }
  }
  if (task.op == as_told()) task.arguments[setting] = c10::IValue(false);
  return task;
}

}  // namespace

Task unsearched(Task task) { return without(kBenchmark, std::move(task)); }

bool may_round_to_tf32(const Task& task) {
  if (task.op != by_settings() && task.op != as_told()) return false;
  const bool allowed =
      task.op == as_told() ? value_argument(task, kAllowTf32).toBool() : allows_tf32(at::Float32Op::CONV);
  const TensorRef* x = tensor_argument(task, kInput);
  return allowed && x && x->dtype == at::kFloat;
}

Task without_tf32(Task task) { return without(kAllowTf32, std::move(task)); }

}  // namespace nimble
