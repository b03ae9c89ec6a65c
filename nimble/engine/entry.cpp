#include "nimble/engine/entry.h"

#include <algorithm>

#include "nimble/torch/split.h"

namespace nimble {

void Entry::adopt(Recording&& recording) {
  program = std::move(recording.program);
  if (program->parts == 1) {
    parts.push_back({program});
  } else {
    for (Program& part : split_into_parts(*program)) {
      parts.push_back({std::make_shared<const Program>(std::move(part))});
    }
  }
  gradients = std::move(recording.gradients);
  guard = std::move(recording.guard);
  note = std::move(recording.note);
  record_milliseconds = recording.milliseconds;
  for (const Buffer& buffer : program->buffers) {
    if (!buffer.outside.defined()) continue;
    outside.push_back({buffer.outside.unsafeGetTensorImpl(), buffer.address});
    if (buffer.kind == BufferKind::kExternal) {
      outside_storages.insert(buffer.outside.storage().unsafeGetStorageImpl());
    }
  }
  state = State::kRecorded;
}

// Outside tensors are read where they lay when they were recorded; one that has been given other memory since
// (`p.data = …`, `.half()`) makes the record stale.
bool Entry::holds() const {
  const bool unmoved = std::all_of(outside.begin(), outside.end(), [](const OutsideTensor& recorded) {
    return recorded.tensor->unsafe_storage().data() == recorded.address;
  });
  return unmoved && (!guard || guard->holds());
}

bool Entry::separates(std::span<const at::Tensor> inputs) const {
  if (!program) return true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool bound_outside = program->buffer(program->inputs[i].buffer).kind == BufferKind::kExternal;
    if (bound_outside != outside_storages.contains(inputs[i].storage().unsafeGetStorageImpl())) return false;
  }
  return true;
}

Tensors Entry::replay(std::span<const at::Tensor> inputs) {
  gradients.spare_what_others_hold();
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    parts[i].choice.executable->replay(inputs);
    gradients.put_back_at_pause(i);
    guard->host_step(i);
  }
  Tensors outputs = parts.back().choice.executable->replay(inputs);
  gradients.put_back();
  if (guard) guard->put_back();
  return outputs;
}

}  // namespace nimble
