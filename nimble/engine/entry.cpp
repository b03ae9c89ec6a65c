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
    watch(buffer.outside, may_move ? nullptr : buffer.address, buffer.bytes);
    if (buffer.kind == BufferKind::kExternal) {
      outside_storages.insert(buffer.outside.storage().unsafeGetStorageImpl());
    }
  }
  for (const TensorRef& input : program->inputs) {
    const Buffer& buffer = program->buffer(input.buffer);
    const bool lies_outside = buffer.kind == BufferKind::kExternal;
    places_of_inputs.push_back(
        {lies_outside ? buffer.outside.storage().unsafeGetStorageImpl() : nullptr, input.offset});
  }
  // A buffer has one tensor alone, the first that looked at it: perhaps a view that nobody else has.
  std::set<const c10::TensorImpl*> watched;
  for (const OutsideTensor& recorded : outside) watched.insert(recorded.tensor);
  for (const at::Tensor& tensor : known_outside) {
    if (!tensor.has_storage() || !outside_storages.contains(tensor.storage().unsafeGetStorageImpl()))
      continue;
    if (!watched.insert(tensor.unsafeGetTensorImpl()).second) continue;
    watch(tensor, tensor.storage().data(), tensor.storage().nbytes());
  }
  state = State::kRecorded;
}

void Entry::watch(const at::Tensor& tensor, const void* address, std::size_t bytes) {
  outside.push_back({tensor.unsafeGetTensorImpl(), tensor.storage().unsafeGetStorageImpl(), address, bytes,
                     tensor.storage_offset(), tensor.sizes().size(), tensor.dtype(), tensor.key_set(),
                     tensor.requires_grad()});
  for (std::size_t d = 0; d < tensor.sizes().size(); ++d) {
    outside_forms.push_back(tensor.sizes()[d]);
    outside_forms.push_back(tensor.strides()[d]);
  }
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

// Outside tensors are read where they lay, and as they looked, when they were recorded; one that has been
// given other memory since (`p.data = …`, `.half()`) or another form in the same memory (`p.t_()`), or that
// was frozen or thawed, makes the record stale.
std::size_t Entry::first_changed() const {
  const bool with_grad = at::GradMode::is_enabled();  // part of the signature
  constexpr std::size_t kAhead = 16;  // lies in memory that nobody has touched since the last call
  constexpr std::size_t kCacheLine = 64;
  const std::int64_t* form = outside_forms.data();
  for (std::size_t i = 0; i < outside.size(); ++i) {
    if (i + kAhead < outside.size()) {
      const auto* tensor = reinterpret_cast<const char*>(outside[i + kAhead].tensor);
      for (std::size_t at = 0; at < sizeof(c10::TensorImpl); at += kCacheLine)
        __builtin_prefetch(tensor + at);
      __builtin_prefetch(outside[i + kAhead].storage);
    }
    const OutsideTensor& recorded = outside[i];
    const c10::TensorImpl& now = *recorded.tensor;
    const auto sizes = now.sizes(), strides = now.strides();
    if (now.unsafe_storage().unsafeGetStorageImpl() != recorded.storage ||
        (recorded.address ? recorded.storage->data() != recorded.address
                          : recorded.storage->nbytes() != recorded.bytes) ||
        sizes.size() != recorded.dimensions || now.storage_offset() != recorded.offset ||
        now.dtype() != recorded.dtype || now.key_set() != recorded.kind ||
        (with_grad && now.requires_grad() != recorded.requires_grad)) {
      return i;
    }
    std::int64_t differences = 0;  // a branch for each dimension would be guessed wrong now and then
    for (std::size_t d = 0; d < recorded.dimensions; ++d, form += 2) {
      differences |= (sizes[d] ^ form[0]) | (strides[d] ^ form[1]);
    }
    if (differences) return i;
  }
  return outside.size();
}

bool Entry::holds() const { return first_changed() == outside.size() && (!guard || guard->holds()); }

std::string Entry::what_changed() const {
  const std::size_t i = first_changed();
  if (i == outside.size()) return guard ? guard->what_changed() : "";
  const c10::TensorImpl& now = *outside[i].tensor;
  const std::string tensor = c10::str("a tensor that it reads (now of sizes ", now.sizes(), ")");
  const bool is_thawed = at::GradMode::is_enabled() && now.requires_grad() != outside[i].requires_grad;
  return tensor + (is_thawed ? " is frozen or thawed" : " is given other memory, or another form");
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

// A backward pass gives an entry up without the lock under which a reason could be left.
std::string Entry::why_not_replayed() const {
  const bool by_backward_pass = state == State::kEager && reason.empty();
  return by_backward_pass ? "the loss used other results than when it was recorded" : reason;
}

bool Entry::separates(std::span<const at::Tensor> inputs) const {
  if (!program) return true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const PlaceOutside& place = places_of_inputs[i];
    const auto* storage = inputs[i].storage().unsafeGetStorageImpl();
    if (place.storage ? storage != place.storage || inputs[i].storage_offset() != place.offset
                      : outside_storages.contains(storage)) {
      return false;
    }
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
