#include "nimble/engine/entry.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace nimble {

void Entry::adopt(Recording&& recording, const CompileOptions& options) {
  program = std::move(recording.program);
  for (auto& part : recording.parts) parts.push_back({std::move(part)});
  derivative = std::move(recording.derivative);
  if (derivative) prepare_backward();
  gradients = std::move(recording.gradients);
  guard = std::move(recording.guard);
  note = std::move(recording.note);
  known_outside = std::move(recording.outside);
  record_milliseconds = recording.milliseconds;
  for (const Buffer& buffer : program->buffers) {
    if (!buffer.outside.defined()) continue;
    const bool may_move = buffer.kind == BufferKind::kEscaped && parts.size() == 1 && options.share_memory;
    outside.push_back({buffer.outside.unsafeGetTensorImpl(), buffer.outside.storage().unsafeGetStorageImpl(),
                       may_move ? nullptr : buffer.address, buffer.bytes, buffer.outside.requires_grad()});
    if (buffer.kind == BufferKind::kExternal) {
      outside_storages.insert(buffer.outside.storage().unsafeGetStorageImpl());
    }
  }
  state = State::kRecorded;
}

void Entry::prepare_backward() {
  Program forward = *parts[0].program;
  const Program& backward = *parts[1].program;
  forward.inputs.resize(forward.inputs.size() - derivative->results.size());
  std::vector<bool> read(backward.buffers.size());
  for (const Task& task : backward.tasks) {
    for (const TensorRef& ref : task.reads) read[ref.buffer.index()] = true;
  }
  for (std::size_t i = 0; i < forward.inputs.size(); ++i) {
    if (read[forward.inputs[i].buffer.index()]) inputs_for_backward.push_back(i);
  }
  for (std::size_t b = 0; b < read.size(); ++b) {
    const Buffer& buffer = backward.buffers[b];
    if (read[b] && buffer.kind == BufferKind::kExternal) outside_for_backward.push_back(buffer.outside);
  }
  parts[0].program = std::make_shared<const Program>(std::move(forward));
}

// Outside tensors are read where they lay when they were recorded; one that has been given other memory since
// (`p.data = …`, `.half()`), or that was frozen or thawed, makes the record stale.
bool Entry::holds() const {
  const bool with_grad = at::GradMode::is_enabled();  // part of the signature
  constexpr std::size_t kAhead = 16;  // lies in memory that nobody has touched since the last call
  for (std::size_t i = 0; i < outside.size(); ++i) {
    if (i + kAhead < outside.size()) {
      __builtin_prefetch(outside[i + kAhead].tensor);
      __builtin_prefetch(outside[i + kAhead].storage);
    }
    const OutsideTensor& recorded = outside[i];
    if (recorded.tensor->unsafe_storage().unsafeGetStorageImpl() != recorded.storage ||
        (recorded.address ? recorded.storage->data() != recorded.address
                          : recorded.storage->nbytes() != recorded.bytes) ||
        (with_grad && recorded.tensor->requires_grad() != recorded.requires_grad)) {
      return false;
    }
  }
  return !guard || guard->holds();
}

bool Entry::trains() const {
  return derivative || parts.size() > 1 || std::any_of(parts.begin(), parts.end(), [](const Part& part) {
           return writes_outside(*part.program);
         });
}

bool Entry::is_rewritten() const {
  // Other kernels need other memory, or are not there.
  const bool failed_on_the_way = !why_without_tf32.empty() && rewrites_dropped.empty() && !is_planned();
  return failed_on_the_way || std::any_of(parts.begin(), parts.end(), [](const Part& part) {
           return part.rewriting.program && part.rewriting.program != part.program;
         });
}

bool Entry::could_be_more_precise() const {
  return why_without_tf32.empty() && std::any_of(parts.begin(), parts.end(), [](const Part& part) {
           return nimble::could_be_more_precise(part.rewriting, *part.program);
         });
}

std::vector<Part> Entry::rewrite_without_tf32(const std::string& why) {
  why_without_tf32 = why;
  return take_schedules();
}

std::vector<Part> Entry::drop_rewrites(const std::string& why) {
  rewrites_dropped = why;
  return take_schedules();
}

std::vector<Part> Entry::take_schedules() {
  std::vector<Part> taken;
  for (Part& part : parts) {
    taken.push_back(
        {part.program, std::exchange(part.rewriting, Rewriting{}), std::exchange(part.choice, Choice{})});
  }
  return taken;
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
  gradients.before_replay();
  const std::size_t last = derivative ? 0 : parts.size() - 1;
  for (std::size_t i = 0; i < last; ++i) {
    parts[i].replay(inputs);
    gradients.put_back_at_pause(i);
    guard->host_step(i);
  }
  if (derivative) parts[1].choice.executable->let_current_stream_wait();
  Tensors outputs = parts[last].replay(inputs);
  gradients.put_back();
  if (guard) guard->put_back();
  return outputs;
}

}  // namespace nimble
