#include "nimble/torch/rewrites/rename.h"

namespace nimble {
namespace {

void rename(TensorRef& ref, const Names& names) {
  if (const auto found = names.find(ref.buffer); found != names.end()) ref.buffer = found->second;
}

void rename(std::vector<Operand>& operands, const Names& names) {
  for (Operand& operand : operands) {
    if (auto* ref = std::get_if<TensorRef>(&operand)) rename(*ref, names);
    if (auto* list = std::get_if<TensorRefList>(&operand)) {
      for (auto& element : list->refs)
        if (element) rename(*element, names);
    }
  }
}

}  // namespace

void rename(Task& task, const Names& names) {
  rename(task.arguments, names);
  rename(task.results, names);
  for (TensorRef& ref : task.reads) rename(ref, names);
  for (TensorRef& ref : task.writes) rename(ref, names);
}

void rename_outputs(Program& program, const Names& names) {
  for (Buffer& buffer : program.buffers) buffer.returned = false;
  for (Output& output : program.outputs) {
    rename(output.ref, names);
    program.buffers[output.ref.buffer.index()].returned = true;
  }
}

}  // namespace nimble
