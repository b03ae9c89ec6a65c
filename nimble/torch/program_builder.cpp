#include "nimble/torch/program_builder.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <unordered_set>

#include "nimble/torch/allocations_of_call.h"
#include "nimble/torch/calls_apart.h"
#include "nimble/torch/constant_folding.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/random_states.h"
#include "nimble/torch/unfilled_memory.h"
#include "nimble/torch/unused_vectors.h"

namespace nimble {

// A storage we know. Held weakly: its address stays taken, so that no new storage is mistaken for it, while
// its memory goes as soon as PyTorch lets go of it.
struct ProgramBuilder::Tracked {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  BufferId buffer;
  const void* data = nullptr;  // a storage that was resized is a new buffer
};

namespace {

template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

}  // namespace

struct ProgramBuilder::Call {
  c10::OperatorHandle op;
  std::vector<c10::IValue>
      values;  // the arguments themselves: a written one may come back with another shape
  std::vector<Operand> arguments;
  std::vector<std::size_t> twins;
  bool constant = false;  // depends on nothing but constants
  bool random = false;
  std::string where;
  AutogradTrace::Origin origin = {};
  std::optional<Draw> draw = {};

  at::Generator generator() const {
    c10::Device device = c10::kCPU;
    for (const auto& value : values) {
      if (value.isDevice()) device = value.toDevice();
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (tensor.is_cuda()) device = tensor.device();
      });
    }
    return generator_of(arguments, device);
  }
};

namespace {

// A Python number that stands where a tensor is expected: it has no identity, so it is an argument by value.
bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

std::vector<std::size_t> twins_among(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> seen;
  std::vector<std::size_t> twins;
  for (const auto& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (value.isTensor() && is_number(tensor)) return;
      const auto first =
          std::find_if(seen.begin(), seen.end(), [&](const at::Tensor& t) { return t.is_same(tensor); });
      twins.push_back(first - seen.begin());
      seen.push_back(tensor);
    });
  }
  return twins;
}

std::optional<Refusal> unsupported(const std::string& what, const at::Tensor& tensor) {
  const auto refusal = [&](std::string kind) {
    return Refusal{what, "it has to do with a " + std::move(kind) + " tensor",
                   "Nimble replays dense tensors only; leave this part outside the compiled function", ""};
  };
  if (tensor.is_nested()) return refusal("nested");
  if (tensor.layout() != at::kStrided) return refusal(c10::str(tensor.layout()));
  if (tensor.is_quantized()) return refusal("quantized");
  if (tensor._is_zerotensor()) return refusal("symbolic zero");
  if (!tensor.has_storage() || tensor.is_meta()) return refusal("storage-less");
  return std::nullopt;
}

}  // namespace

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
  refusal.may_pass |= in_step_;
  if (on_refusal_ == OnRefusal::kThrow && !refusal.may_pass) throw RecordError(refusal.message());
  std::lock_guard lock(mutex_);
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

Operand ProgramBuilder::argument_operand(const c10::IValue& value) {
  const auto ref = [&](const at::Tensor& tensor) { return describe(tensor, known_buffer(tensor)); };
  if (value.isTensor() && value.toTensor().defined() && !is_number(value.toTensor()))
    return ref(value.toTensor());
  if (value.isTensorList() || value.isOptionalTensorList()) {
    TensorRefList list{.refs = {}, .of_optionals = !value.isTensorList()};
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor() && element.toTensor().defined()) {
        list.refs.emplace_back(ref(element.toTensor()));
      } else {
        list.refs.emplace_back(std::nullopt);
      }
    }
    return list;
  }
  return value;
}

ProgramBuilder::Call ProgramBuilder::before(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                                            std::string where) {
  const auto values = torch::jit::last(stack, op.schema().arguments().size());
  Call call{op, values.vec(), {}, twins_among(values), false, draws_random_numbers(op), std::move(where)};

  std::optional<Refusal> refusal;
  const auto& name = op.operator_name().name;
  for (const auto& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!refusal) refusal = unsupported(name, tensor);
    });
  }
  if (!refusal) {
    std::lock_guard lock(mutex_);
    call.constant = !call.random;
    for (const auto& value : values) {
      if (lifts_a_constant(op) && !tracked_.contains(storage_of(value.toTensor()))) {
        const at::Tensor& tensor = value.toTensor();
        track(tensor,
              {.kind = BufferKind::kConstant, .outside = tensor, .address = tensor.storage().mutable_data()},
              true);
      }
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        const bool is_result = tensor.requires_grad() && !tensor.is_leaf();
        if (is_result && !used_result_from_outside_ && !tracked_.contains(storage_of(tensor)))
          used_result_from_outside_ = call.where;
      });
      call.arguments.push_back(argument_operand(value));
      for_each_tensor(value, [&](const at::Tensor& tensor) { see_leaf(tensor); });
      for_each_ref(call.arguments.back(), [&](const TensorRef& ref) {
        call.constant = call.constant && constant_[ref.buffer.index()];
      });
    }
    // What only constants went into is the same at every call, so the host may look at it.
    if (!call.constant && !is_host_bookkeeping(op)) refusal = depends_on_data(op, values);
    if (!refusal && call.random) {
      const at::Generator generator = call.generator();
      sequences_.begin(generator);
      if (const auto position = sequences_.position_of(generator)) {
        call.draw = Draw{generator, *position};
      } else {
        refusal = Refusal{"a random generator that is seeded inside the function",
                          "a replay goes on with the generator's sequence", "Seed it before the call", ""};
      }
    }
  }
  if (refusal) {
    refusal->where = call.where;
    refuse(*std::move(refusal));
  }
  return call;
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

void ProgramBuilder::see_leaf(const at::Tensor& tensor) {
  const auto found = tracked_.find(storage_of(tensor));
  const bool is_outside =
      found != tracked_.end() && program_.buffer(found->second.buffer).kind == BufferKind::kExternal;
  if (is_outside) leaves_.see(tensor);
}

void ProgramBuilder::keep_before(const Call& call) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < call.values.size(); ++i) {
    for_each_tensor(call.values[i], [&](const at::Tensor& tensor) {
      if (!is_written(call.op, i, call.values) || is_number(tensor)) return;
      const auto kind = program_.buffer(known_buffer(tensor)).kind;
      if (kind == BufferKind::kExternal || kind == BufferKind::kInput) undo_->keep(tensor);
    });
  }
  if (call.random) undo_->keep(call.generator());
}

void ProgramBuilder::after(Call call, AllocationsOfCall& allocations, c10::ArrayRef<c10::IValue> results) {
  const auto& op = call.op;
  Task task{.op = op, .arguments = std::move(call.arguments), .twins = std::move(call.twins)};
  std::optional<Refusal> refusal;
  for (const auto& value : results) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!refusal) refusal = unsupported(op.operator_name().name, tensor);
    });
  }
  if (refusal) {
    refusal->where = call.where;
    return refuse(*std::move(refusal));
  }

  std::unique_lock lock(mutex_);
  if (call.draw) sequences_.drew(call.draw->generator);
  // An `out=` argument comes back with the shape, and perhaps the memory, that the operator gave it. At
  // replay it has them from the start.
  for (std::size_t i = 0; i < task.arguments.size(); ++i) {
    if (!is_written(op, i, call.values)) continue;
    // A tensor that now looks at other memory (set_) would keep that alive in the name of its own.
    for_each_ref(task.arguments[i], [&](const TensorRef& was) {
      at::Tensor& held = held_[was.buffer.index()];
      if (!held.defined()) return;
      const auto found = tracked_.find(storage_of(held));
      if (found != tracked_.end() && found->second.buffer == was.buffer) return;
      held.reset();
      constant_[was.buffer.index()] = false;
    });
    for_each_tensor(call.values[i], [&](const at::Tensor& tensor) {
      if (is_number(tensor)) return;
      const auto found = tracked_.find(storage_of(tensor));
      if (found == tracked_.end() || found->second.data == tensor.storage().data()) return;
      const bool had_content = program_.buffer(found->second.buffer).bytes > 0;
      if (had_content && only_changes_metadata(op)) {
        refusal = Refusal{op.operator_name().name, "it moves a tensor that has content to other memory",
                          "Make the tensor with its final size", call.where};
      }
      const auto old = found->second.buffer.index();
      constant_[old] = false;
      held_[old].reset();
      track(tensor, {}, call.constant);
    });
    task.arguments[i] = argument_operand(call.values[i]);
  }
  if (refusal) {
    lock.unlock();
    return refuse(*std::move(refusal));
  }

  std::unordered_set<BufferId> made;  // several results may be parts of one
  for (const auto& value : results) {
    const auto ref = [&](const at::Tensor& tensor) {
      const auto [buffer, made_here] = result_buffer(tensor, call.constant, allocations);
      if (made_here) made.insert(buffer);
      TensorRef described = describe(tensor, buffer);
      if (made.contains(buffer)) task.writes.push_back(described);
      return described;
    };
    if (value.isTensor() && value.toTensor().defined()) {
      task.results.emplace_back(ref(value.toTensor()));
    } else if (value.isTensorList()) {
      TensorRefList list;
      for (const c10::IValue& element : value.toListRef()) {
        list.refs.push_back(element.toTensor().defined() ? std::optional(ref(element.toTensor()))
                                                         : std::nullopt);
      }
      task.results.emplace_back(std::move(list));
    } else {
      task.results.emplace_back(c10::IValue());
    }
  }

  if (only_changes_metadata(op) || only_allocates(op) || is_host_bookkeeping(op)) return;
  bool has_tensor_results = false;
  for (const auto& result : task.results)
    for_each_ref(result, [&](const TensorRef&) { has_tensor_results = true; });
  for (std::size_t i = 0; i < task.arguments.size(); ++i) {
    for_each_ref(task.arguments[i], [&](const TensorRef& ref) {
      task.reads.push_back(ref);
      if (!is_written(op, i, call.values)) return;
      task.writes.push_back(ref);
      if (call.constant) return;
      constant_[ref.buffer.index()] = false;
      held_[ref.buffer.index()].reset();
      if (program_.buffer(ref.buffer).kind == BufferKind::kConstant && !refusal) {
        refusal = Refusal{
            op.operator_name().name, "it writes into a tensor that was made from host data (torch.tensor)",
            "Make the tensor with torch.zeros, torch.full or clone() before writing into it", call.where};
      }
    });
  }
  if (refusal) {
    lock.unlock();
    return refuse(*std::move(refusal));
  }
  const bool is_view = task.writes.empty() && has_tensor_results;
  const bool is_host_value = task.writes.empty() && !has_tensor_results && !op.schema().returns().empty();
  if (is_view || is_host_value) return;

  for (auto& seen : allocations.seen()) {
    if (seen.freed) {
      program_.buffers.push_back({.kind = BufferKind::kScratch, .bytes = seen.bytes, .device = seen.device});
      constant_.push_back(false);
      held_.emplace_back();
      seen.buffer = BufferId{static_cast<std::uint32_t>(program_.buffers.size() - 1)};
    }
    // Memory that outlives the call without being its result went into a cache of PyTorch's: it stays there.
    if (seen.buffer) task.allocations.push_back({seen.bytes, *seen.buffer});
  }
  task.draw = std::move(call.draw);
  task.part = program_.parts - 1;
  task.step = in_step_ ? steps_ : 0;
  task.state = ThreadState::here();
  task.where = std::move(call.where);
  task.module = std::move(call.origin.module);
  task.node = std::move(call.origin.node);
  program_.tasks.push_back(std::move(task));
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

void ProgramBuilder::call_once(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string where) {
  if (refusal_) return op.callBoxed(stack);  // nobody will replay this: just run
  if (paused_) return call_unrecorded(op, stack);
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
  if (refusal_) return op.callBoxed(stack);
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

Program ProgramBuilder::finish(std::span<const at::Tensor> outputs, std::span<const at::Tensor> kept,
                               std::size_t forward_outputs) {
  for (const at::Tensor& tensor : kept) {
    const auto found = tracked_.find(storage_of(tensor));
    if (found == tracked_.end()) continue;
    Buffer& buffer = program_.buffers[found->second.buffer.index()];
    const bool stays_as_it_is = constant_[found->second.buffer.index()];
    if (buffer.kind != BufferKind::kInternal || stays_as_it_is) continue;
    buffer.kind = BufferKind::kEscaped;
    buffer.outside = tensor.detach();  // the tensor itself is its holder's
    buffer.address = tensor.storage().mutable_data();
  }
  for (const c10::Storage& storage : escaped(outputs)) {
    if (has_backward_) break;
    const BufferId id = tracked_.at(storage.unsafeGetStorageImpl()).buffer;
    const auto maker = std::find_if(program_.tasks.begin(), program_.tasks.end(), [&](const Task& task) {
      return std::any_of(task.writes.begin(), task.writes.end(),
                         [&](const TensorRef& ref) { return ref.buffer == id; });
    });
    if (program_.buffer(id).kind == BufferKind::kEscaped || maker == program_.tasks.end()) continue;
    refuse(
        {maker->op.operator_name().name,
         "its result outlives the function without being returned, and there is no place to put the next one",
         "Return the tensor, or keep it as an attribute of a module that runs inside the compiled function",
         maker->where, /*may_pass=*/true});
    return {};
  }

  for (const at::Tensor& tensor : outputs) {
    if (auto refusal = unsupported("a result", tensor)) {
      refuse(*std::move(refusal));
      return {};
    }
    Output output{.ref = describe(tensor, known_buffer(tensor))};
    output.ref.requires_grad = false;
    output.part = program_.outputs.size() < forward_outputs ? 0 : program_.parts - 1;
    Buffer& buffer = program_.buffers[output.ref.buffer.index()];
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(tensor); };
    if (const auto found = std::find_if(inputs_.begin(), inputs_.end(), is_same); found != inputs_.end()) {
      output.same_as_input = found - inputs_.begin();
    } else if (const auto twin = std::find_if(outputs.begin(), outputs.end(), is_same);
               twin != outputs.begin() + static_cast<std::ptrdiff_t>(program_.outputs.size())) {
      output.same_as_output = twin - outputs.begin();
    } else if (buffer.kind == BufferKind::kExternal && buffer.outside.is_same(tensor)) {
      output.outside = tensor;
    }
    buffer.returned = true;
    program_.outputs.push_back(std::move(output));
  }
  auto generators = sequences_.ends();
  if (!generators) {
    refuse({"a random generator that is seeded inside the function",
            "a replay goes on with the generator's sequence", "Seed it before or after the call", ""});
    return {};
  }
  program_.generators = *std::move(generators);
  for (const auto look : {uses_unfilled_memory, computes_unused_vectors, returns_unfilled_random_state}) {
    if (auto refusal = look(program_)) {
      refuse(*std::move(refusal));
      return {};
    }
  }
  return fold_constants(std::move(program_), held_);
}

}  // namespace nimble
