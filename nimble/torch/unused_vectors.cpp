#include "nimble/torch/unused_vectors.h"

#include <string_view>
#include <unordered_map>

namespace nimble {

std::optional<Refusal> computes_unused_vectors(const Program& program) {
  static const std::unordered_map<std::string_view, std::vector<std::size_t>> vectors_of = {
      {"aten::_linalg_svd", {0, 2}}, {"aten::_linalg_eigh", {1}}};
  for (std::size_t t = 0; t < program.tasks.size(); ++t) {
    const Task& task = program.tasks[t];
    const auto vectors = vectors_of.find(task.op.operator_name().name);
    if (vectors == vectors_of.end()) continue;
    bool computed = false, used = false;
    for (const std::size_t result : vectors->second) {
      const auto& ref = std::get<TensorRef>(task.results[result]);
      computed |= ref.numel() > 0;
      used |= program.buffer(ref.buffer).kind == BufferKind::kEscaped;
      used |= program.buffer(ref.buffer).returned;
      for (std::size_t later = t + 1; later < program.tasks.size(); ++later) {
        for (const TensorRef& read : program.tasks[later].reads) used |= read.buffer == ref.buffer;
      }
    }
    if (!computed || used) continue;
    return Refusal{
        task.op.operator_name().name,
        "PyTorch computes its vectors only because it is watched (as in svdvals, eigvalsh, cond and "
        "nuclear norms), and then its values round otherwise than eager's",
        "Use torch.linalg.svd or torch.linalg.eigh with their vectors, or leave it outside the "
        "compiled function",
        task.where};
  }
  return std::nullopt;
}

}  // namespace nimble
