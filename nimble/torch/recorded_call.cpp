// From an operator call to a task: what it was given, what came of it, and which memory it took.

#include "nimble/torch/recorded_call.h"

#include <algorithm>
#include <unordered_set>

#include "nimble/torch/allocations_of_call.h"
#include "nimble/torch/operator_facts.h"

namespace nimble {

Operand ProgramBuilder::argument_operand(const c10::IValue& value) {
  const auto ref = [&](const at::Tensor& tensor) {
    TensorRef described = describe(tensor, known_buffer(tensor));
    if (!lies_within_inputs(described)) bind_outside(tensor, described.buffer);
    return described;
  };
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

  std::optional<Refusal> refusal = talks_to_other_processes(op);
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
    });
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

}  // namespace nimble
