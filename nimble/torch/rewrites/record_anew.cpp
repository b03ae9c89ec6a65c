#include "nimble/torch/rewrites/record_anew.h"

#include <ATen/ATen.h>

#include <map>

#include "nimble/core/error.h"
#include "nimble/torch/interpreter.h"
#include "nimble/torch/outside_state.h"
#include "nimble/torch/program_builder.h"
#include "nimble/torch/rewrites/unrun_convolution.h"

namespace nimble {
namespace {

// Draws happen one after the other here, so a program that draws some numbers twice would draw others.
void refuse_repeated_draws(const Program& program) {
  std::map<const c10::GeneratorImpl*, std::size_t> next;
  for (const Task& task : program.tasks) {
    if (task.draw && task.draw->position != next[task.draw->generator.unsafeGetGeneratorImpl()]++) {
      throw Error("[nimble::rewrite] the program sets a random generator back");
    }
  }
}

std::vector<at::Tensor> outside_tensors(const Program& program) {
  std::vector<at::Tensor> tensors;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind == BufferKind::kExternal) tensors.push_back(buffer.outside);
  }
  return tensors;
}

enum class Convolutions { kRun, kOnlyForms };

Program record(const Program& program, std::span<const at::Tensor> inputs, Convolutions convolutions) {
  const at::NoGradGuard no_grad;
  refuse_repeated_draws(program);
  const OutsideState before = OutsideState::save(program, inputs);
  ProgramBuilder builder(inputs, ProgramBuilder::OnRefusal::kThrow, outside_tensors(program));
  Interpreter interpreter(program, inputs,
                          [&](const c10::OperatorHandle& op, torch::jit::Stack* stack, const Task* task) {
                            // What is computed from constants may become one, so it needs its value.
                            const bool unseen = convolutions == Convolutions::kOnlyForms && op != unrun(op) &&
                                                !builder.is_constant(stack->front().toTensor());
                            builder.call(unseen ? unrun(op) : op, stack, task ? task->where : std::string());
                          });
  for (std::uint32_t b = 0; b < program.buffers.size(); ++b) {
    if (interpreter.tensor_of(BufferId{b}).defined() && program.buffers[b].outside.defined()) {
      builder.know(program.buffers[b]);
    }
  }
  interpreter.run();
  std::vector<std::optional<BufferId>> new_id(program.buffers.size());
  for (std::uint32_t b = 0; b < program.buffers.size(); ++b) {
    const at::Tensor& tensor = interpreter.tensor_of(BufferId{b});
    if (tensor.defined()) new_id[b] = builder.buffer_of(tensor);
  }
  const std::vector<at::Tensor> outputs = std::move(interpreter).outputs();
  Program recorded = builder.finish(outputs);
  before.restore();

  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    TensorRef ref = std::move(recorded.outputs[i].ref);
    recorded.outputs[i] = program.outputs[i];
    recorded.outputs[i].ref = std::move(ref);
  }
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.kind != BufferKind::kEscaped || !new_id[b]) continue;
    Buffer& now = recorded.buffers[new_id[b]->index()];
    now.kind = BufferKind::kEscaped;
    now.outside = buffer.outside;
    now.address = buffer.address;
  }
  recorded.derivations = program.derivations;
  return recorded;
}

}  // namespace

Program record_anew(const Program& program, std::span<const at::Tensor> inputs) {
  return record(program, inputs, Convolutions::kRun);
}

Program record_forms(const Program& program, std::span<const at::Tensor> inputs) {
  Program recorded = record(program, inputs, Convolutions::kOnlyForms);
  for (Task& task : recorded.tasks) task.op = run_again(task.op);
  return recorded;
}

}  // namespace nimble
