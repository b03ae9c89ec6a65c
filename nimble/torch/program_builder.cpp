#include "nimble/torch/program_builder.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <unordered_set>

#include "nimble/torch/allocations_of_call.h"
#include "nimble/torch/calls_apart.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/recorded_call.h"

namespace nimble {

ProgramBuilder::ProgramBuilder(std::span<const at::Tensor> inputs, OnRefusal on_refusal,
                               std::span<const at::Tensor> outside)
    : on_refusal_(on_refusal), inputs_(inputs.begin(), inputs.end()), leaves_(outside) {
  std::unordered_set<const c10::StorageImpl*> lives_outside;
  for (const at::Tensor& tensor : outside) {
    if (tensor.defined() && tensor.has_storage()) lives_outside.insert(storage_of(tensor));
  }
  for (const at::Tensor& input : inputs) {
    if (auto refusal = unsupported("an argument", input)) {
      refuse(*std::move(refusal));
      return;
    }
    const auto* storage = storage_of(input);
    if (!tracked_.contains(storage) && !lives_outside.contains(storage)) {
      track(input, {.kind = BufferKind::kInput}, false);
    }
    program_.inputs.push_back(describe(input, known_buffer(input)));
    if (input.is_cuda()) sequences_.begin(at::globalContext().defaultGenerator(input.device()));
  }
  sequences_.begin(at::globalContext().defaultGenerator(c10::kCPU));
}

ProgramBuilder::~ProgramBuilder() = default;

void ProgramBuilder::refuse(Refusal refusal) {
  const std::lock_guard lock(mutex_);
  refusal.may_pass |= in_step_;
  if (on_refusal_ == OnRefusal::kThrow && !refusal.may_pass) throw RecordError(refusal.message());
  if (!refusal_) refusal_ = std::move(refusal);
}

BufferId ProgramBuilder::track(const at::Tensor& tensor, Buffer buffer, bool constant) {
  const c10::Storage& storage = tensor.storage();
  buffer.bytes = storage.nbytes();
  buffer.device = tensor.device();
  const BufferId id{static_cast<std::uint32_t>(program_.buffers.size())};
  program_.buffers.push_back(std::move(buffer));
  constant_.push_back(constant);
  held_.push_back(constant ? tensor : at::Tensor());
  tracked_.insert_or_assign(storage.unsafeGetStorageImpl(),
                            Tracked{storage.getWeakStorageImpl(), id, storage.data()});
  return id;
}

BufferId ProgramBuilder::known_buffer(const at::Tensor& tensor) {
  if (const auto found = tracked_.find(storage_of(tensor)); found != tracked_.end())
    return found->second.buffer;
  return track(tensor,
               {.kind = BufferKind::kExternal, .outside = tensor, .address = tensor.storage().mutable_data()},
               false);
}

bool ProgramBuilder::lies_within_inputs(const TensorRef& ref) const {
  if (program_.buffer(ref.buffer).kind != BufferKind::kInput) return true;
  const ByteRange range = byte_range(ref);
  if (range.empty()) return true;
  ByteRange given;
  for (const TensorRef& input : program_.inputs) {
    if (input.buffer != ref.buffer) continue;
    const ByteRange one = byte_range(input);
    if (one.empty()) continue;
    given = given.empty() ? one : ByteRange{std::min(given.begin, one.begin), std::max(given.end, one.end)};
  }
  return given.begin <= range.begin && range.end <= given.end;
}

void ProgramBuilder::bind_outside(const at::Tensor& tensor, BufferId input) {
  Buffer& buffer = program_.buffers[input.index()];
  buffer.kind = BufferKind::kExternal;
  buffer.outside = tensor;
  buffer.address = tensor.storage().mutable_data();
}

void ProgramBuilder::know(const Buffer& buffer) {
  const bool constant = buffer.kind == BufferKind::kConstant;
  const auto found = tracked_.find(storage_of(buffer.outside));
  if (found == tracked_.end()) {
    track(buffer.outside, buffer, constant);
  } else {
    program_.buffers[found->second.buffer.index()] = buffer;
  }
}

std::optional<BufferId> ProgramBuilder::buffer_of(const at::Tensor& tensor) const {
  const auto found = tracked_.find(storage_of(tensor));
  return found == tracked_.end() ? std::nullopt : std::optional(found->second.buffer);
}

std::pair<BufferId, bool> ProgramBuilder::result_buffer(const at::Tensor& tensor, bool constant,
                                                        AllocationsOfCall& allocations) {
  const auto found = tracked_.find(storage_of(tensor));
  const void* data = tensor.storage().data();
  if (found != tracked_.end() && found->second.data == data) return {found->second.buffer, false};
  const BufferId id = track(tensor, {}, constant);
  if (auto* seen = allocations.find(data)) seen->buffer = id;
  return {id, true};
}

void ProgramBuilder::keep_before_change(OutsideState* undo) {
  undo_ = undo;
  undo_->keep(at::globalContext().defaultGenerator(c10::kCPU));
  for (const at::Tensor& input : inputs_) {
    if (input.is_cuda()) undo_->keep(at::globalContext().defaultGenerator(input.device()));
  }
}

void ProgramBuilder::begin_backward(std::span<const at::Tensor> gradients) {
  const std::lock_guard lock(mutex_);
  has_backward_ = true;
  begin_part();
  for (const at::Tensor& gradient : gradients) {
    inputs_.push_back(gradient);
    track(gradient, {.kind = BufferKind::kInput}, false);
    program_.inputs.push_back(describe(gradient, known_buffer(gradient)));
  }
}

void ProgramBuilder::begin_step() {
  const std::lock_guard lock(mutex_);
  ++steps_;
  in_step_ = true;
}

void ProgramBuilder::end_step() {
  const std::lock_guard lock(mutex_);
  in_step_ = false;
}

void ProgramBuilder::pause() {
  const std::lock_guard lock(mutex_);
  paused_ = true;
  gradients_at_pauses_.push_back(leaves_.gradients());
}

void ProgramBuilder::resume() {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  begin_part();
}

void ProgramBuilder::begin_part() {
  // Whoever calls this is being watched, and what is asked here is not the user's doing.
  const c10::impl::ExcludeDispatchKeyGuard unwatched(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  ++program_.parts;
  // One that was seeded is noticed by the next draw, or at the end.
  program_.generators_at_cuts.push_back(sequences_.positions());
}

namespace {

// Adds what one of several calls gave to what all of them give.
void join(c10::IValue& all, c10::IValue one) {
  if (one.isTensorList() && all.isTensorList()) {
    auto list = all.toTensorList();  // the same one
    for (const at::Tensor& tensor : one.toTensorVector()) list.push_back(tensor);
  } else if (one.isTensorList() || one.toTensor().defined()) {
    all = std::move(one);
  }
}

}  // namespace

void ProgramBuilder::call(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string where) {
  const auto apart = calls_apart(op, *stack);
  if (apart.empty()) return call_once(op, stack, std::move(where));
  torch::jit::Stack results(op.schema().returns().size(), at::Tensor());  // undefined where nobody wants it
  for (torch::jit::Stack call : apart) {
    call_once(op, &call, where);
    for (std::size_t i = 0; i < results.size(); ++i) join(results[i], std::move(call[i]));
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->insert(stack->end(), std::make_move_iterator(results.begin()),
                std::make_move_iterator(results.end()));
}

bool ProgramBuilder::is_refused() {
  const std::lock_guard lock(mutex_);
  return refusal_.has_value();
}

bool ProgramBuilder::is_paused() {
  const std::lock_guard lock(mutex_);
  return paused_;
}

void ProgramBuilder::call_once(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string where) {
  if (is_refused()) return op.callBoxed(stack);  // nobody will replay this: just run
  if (is_paused()) return call_unrecorded(op, stack);
  bool hooked = false;
  if (const auto node = torch::autograd::get_current_node(); node && !at::GradMode::is_enabled()) {
    const std::lock_guard lock(mutex_);
    autograd_.runs(node);
    hooked |= !node->pre_hooks().empty() || !node->post_hooks().empty();
    if (where.empty()) where = "the backward pass, " + node->name();
  }
  if (hooked) {
    refuse({"a hook on autograd's graph", "it is code that runs in backward() beside the operators",
            "Work on gradients after backward() instead, inside the function", where});
    return op.callBoxed(stack);
  }
  Call call = before(op, *stack, std::move(where));
  if (is_refused()) return op.callBoxed(stack);
  if (undo_) keep_before(call);
  {
    const std::lock_guard lock(mutex_);
    call.origin = autograd_.origin_of_next_call();
  }
  AllocationsOfCall allocations;
  {
    AllocationHookGuard watch(&allocations);
    op.callBoxed(stack);
  }
  AllocationHookGuard unwatched(nullptr);
  after(std::move(call), allocations, torch::jit::last(*stack, op.schema().returns().size()));
}

void ProgramBuilder::set_module(std::string path) {
  const std::lock_guard lock(mutex_);
  autograd_.set_module(std::move(path));
}

// What the host writes between two parts is no constant, whatever it was made of.
void ProgramBuilder::call_unrecorded(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  {
    const std::lock_guard lock(mutex_);
    const auto values = torch::jit::last(*stack, op.schema().arguments().size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!is_written(op, i, values)) continue;
      for_each_tensor(values[i], [&](const at::Tensor& tensor) {
        const auto found = tensor.has_storage() ? tracked_.find(storage_of(tensor)) : tracked_.end();
        if (found == tracked_.end()) return;
        constant_[found->second.buffer.index()] = false;
        held_[found->second.buffer.index()].reset();
      });
    }
  }
  op.callBoxed(stack);
}

bool ProgramBuilder::is_constant(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (!tensor.has_storage()) return false;
  const auto found = tracked_.find(storage_of(tensor));
  return found != tracked_.end() && constant_[found->second.buffer.index()];
}

bool ProgramBuilder::knows(const c10::Storage& storage) const {
  return tracked_.contains(storage.unsafeGetStorageImpl());
}

std::vector<c10::Storage> ProgramBuilder::escaped(std::span<const at::Tensor> outputs) {
  std::unordered_set<const c10::StorageImpl*> returned;
  for (const auto& output : outputs) {
    if (output.defined() && output.has_storage()) returned.insert(storage_of(output));
  }
  std::vector<c10::Storage> alive;
  for (const auto& [impl, tracked] : tracked_) {
    if (program_.buffer(tracked.buffer).kind != BufferKind::kInternal || constant_[tracked.buffer.index()])
      continue;
    if (returned.contains(impl)) continue;
    if (auto storage = tracked.storage.lock()) alive.emplace_back(std::move(storage));
  }
  return alive;
}

}  // namespace nimble
