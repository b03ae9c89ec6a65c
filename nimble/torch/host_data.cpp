#include "nimble/torch/host_data.h"

namespace nimble {

std::optional<Refusal> writes_host_data(const Program& program) {
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.writes) {
      if (program.buffer(ref.buffer).kind != BufferKind::kConstant) continue;
      return Refusal{
          task.op.operator_name().name, "it writes into a tensor that was made from host data (torch.tensor)",
          "Make the tensor with torch.zeros, torch.full or clone() before writing into it", task.where};
    }
  }
  return std::nullopt;
}

}  // namespace nimble
