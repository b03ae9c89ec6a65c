#pragma once

#include <torch/torch.h>

#include <functional>

#include "nimble/backend/executable.h"
#include "nimble/torch/dispatch_mode.h"
#include "nimble/torch/program_builder.h"

namespace nimble {

// One recorded run of `function` on `inputs`; throws RecordError where it cannot be replayed.
inline Program record(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& function) {
  cpu_backend().watch_allocations();
  ProgramBuilder builder(inputs, ProgramBuilder::OnRefusal::kThrow);
  Tensors outputs;
  {
    const DispatchModeGuard mode(builder);
    outputs = function(inputs);
  }
  Program program = builder.finish(outputs);
  if (builder.refusal()) throw RecordError(builder.refusal()->message());  // one that may pass is not thrown
  return program;
}

// The operators of a program, in order.
inline std::vector<std::string> operators(const Program& program) {
  std::vector<std::string> names;
  for (const Task& task : program.tasks) names.push_back(task.op.operator_name().name);
  return names;
}

}  // namespace nimble
