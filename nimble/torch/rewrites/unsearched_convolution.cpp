#include "nimble/torch/rewrites/unsearched_convolution.h"

#include <ATen/Context.h>

#include "nimble/torch/operator_facts.h"

namespace nimble {

Task unsearched(Task task) {
  static const auto convolution = find_operator("aten::convolution"),
                    with_settings = find_operator("aten::_convolution");
  if (task.op != convolution) return task;
  const auto& settings = at::globalContext();
  task.op = with_settings;
  for (const bool setting :
       {/*benchmark=*/false, settings.deterministicCuDNN() || settings.deterministicAlgorithms(),
        settings.userEnabledCuDNN(), settings.allowTF32CuDNN(at::Float32Op::CONV)}) {
    task.arguments.emplace_back(c10::IValue(setting));
  }
  return task;
}

}  // namespace nimble
