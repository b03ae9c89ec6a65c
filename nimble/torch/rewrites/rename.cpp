#include "nimble/torch/rewrites/rename.h"

namespace nimble {
namespace {

void rename_ref(TensorRef& ref, const Names& names) {
  if (const auto found = names.find(ref.buffer); found != names.end()) ref.buffer = found->second;
}

void change_refs(std::vector<Operand>& operands, const std::function<void(TensorRef&)>& change) {
  for (Operand& operand : operands) {
    if (auto* ref = std::get_if<TensorRef>(&operand)) change(*ref);
    if (auto* list = std::get_if<TensorRefList>(&operand)) {
      for (auto& element : list->refs)
        if (element) change(*element);
    }
  }
}

}  // namespace

void change_refs(Task& task, const std::function<void(TensorRef&)>& change) {
  change_refs(task.arguments, change);
  change_refs(task.results, change);
  for (TensorRef& ref : task.reads) change(ref);
  for (TensorRef& ref : task.writes) change(ref);
}

void rename(Task& task, const Names& names) {
  change_refs(task, [&](TensorRef& ref) { rename_ref(ref, names); });
}

void rename_outputs(Program& program, const Names& names) {
  for (Buffer& buffer : program.buffers) buffer.returned = false;
  for (Output& output : program.outputs) {
    rename_ref(output.ref, names);
    program.buffers[output.ref.buffer.index()].returned = true;
  }
}

}  // namespace nimble
