#include "nimble/engine/entry.h"

#include "nimble/torch/split.h"

namespace nimble {
namespace {

// Outside tensors are read where they lay when they were recorded; one that has been given other memory since
// (`p.data = …`, `.half()`) makes the record stale.
bool outside_unmoved(const Program& program) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.outside.defined() && buffer.outside.storage().data() != buffer.address) return false;
  }
  return true;
}

}  // namespace

void Entry::adopt(Recording&& recording) {
  program = std::move(recording.program);
  if (program->parts == 1) {
    parts.push_back({program});
  } else {
    for (Program& part : split_into_parts(*program)) {
      parts.push_back({std::make_shared<const Program>(std::move(part))});
    }
  }
  for (std::size_t i = 0; i < recording.gradients_at_pauses.size(); ++i) {
    parts[i].gradients = std::move(recording.gradients_at_pauses[i]);
  }
  gradients = std::move(recording.gradients);
  guard = std::move(recording.guard);
  note = std::move(recording.note);
  record_milliseconds = recording.milliseconds;
  for (const Buffer& buffer : program->buffers) {
    if (buffer.kind == BufferKind::kExternal) {
      outside_storages.insert(buffer.outside.storage().unsafeGetStorageImpl());
    }
  }
  state = State::kRecorded;
}

bool Entry::holds() const { return (!program || outside_unmoved(*program)) && (!guard || guard->holds()); }

bool Entry::separates(std::span<const at::Tensor> inputs) const {
  if (!program) return true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool bound_outside = program->buffer(program->inputs[i].buffer).kind == BufferKind::kExternal;
    if (bound_outside != outside_storages.contains(inputs[i].storage().unsafeGetStorageImpl())) return false;
  }
  return true;
}

Tensors Entry::replay(std::span<const at::Tensor> inputs) {
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    parts[i].choice.executable->replay(inputs);
    set_gradients(parts[i].gradients);
    guard->host_step(i);
  }
  Tensors outputs = parts.back().choice.executable->replay(inputs);
  gradients.put_back();
  if (guard) guard->put_back();
  return outputs;
}

}  // namespace nimble
