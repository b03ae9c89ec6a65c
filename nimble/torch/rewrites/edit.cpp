#include "nimble/torch/rewrites/edit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "nimble/torch/operator_facts.h"

namespace nimble {

TensorRef Edit::new_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  TensorRef ref;
  ref.buffer = BufferId{static_cast<std::uint32_t>(buffers_.size())};
  ref.sizes = at::DimVector(sizes);
  ref.strides = at::DimVector(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    ref.strides[d] = stride;
    stride *= sizes[d];
  }
  ref.dtype = dtype;
  buffers_.push_back({.kind = BufferKind::kInternal,
                      .bytes = static_cast<std::uint64_t>(ref.numel()) * c10::elementSize(dtype),
                      .device = device});
  return ref;
}

Task Edit::make_task(TaskId like, const c10::OperatorHandle& op, std::vector<Operand> arguments,
                     std::vector<Operand> results) const {
  Task task{.op = op, .arguments = std::move(arguments), .results = std::move(results)};
  const Task& place = program_.task(like);
  task.part = place.part;
  task.step = place.step;
  task.state = place.state;
  task.where = place.where;
  task.module = place.module;
  task.node = place.node;
  find_accesses(task);
  task.twins.resize(task.reads.size());  // each tensor is one of its own
  std::iota(task.twins.begin(), task.twins.end(), std::size_t{0});
  return task;
}

void Edit::insert(TaskId at, const c10::OperatorHandle& op, std::vector<Operand> arguments,
                  std::vector<Operand> results) {
  inserted_[at].push_back(make_task(at, op, std::move(arguments), std::move(results)));
}

void Edit::replace(TaskId at, const c10::OperatorHandle& op, std::vector<Operand> arguments,
                   std::vector<Operand> results) {
  replaced_.insert_or_assign(at, make_task(at, op, std::move(arguments), std::move(results)));
}

Program Edit::finish() && {
  Program edited = program_;
  edited.buffers = std::move(buffers_);
  edited.tasks.clear();
  for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
    const TaskId id{i};
    if (const auto found = inserted_.find(id); found != inserted_.end()) {
      for (Task& task : found->second) edited.tasks.push_back(std::move(task));
    }
    if (dropped_.contains(id)) continue;
    const auto replaced = replaced_.find(id);
    edited.tasks.push_back(replaced != replaced_.end() ? std::move(replaced->second) : program_.tasks[i]);
  }
  return edited;
}

Operand optional_ref(const std::optional<TensorRef>& ref) {
  return ref ? Operand(*ref) : Operand(c10::IValue());
}

void find_allocations(Task& task, std::span<const Buffer> buffers) {
  task.allocations.clear();
  for (const TensorRef& ref : task.writes) {
    const auto is_this = [&](const TensorRef& read) { return read.buffer == ref.buffer; };
    if (std::ranges::any_of(task.reads, is_this)) continue;
    task.allocations.push_back({buffers[ref.buffer.index()].bytes, ref.buffer});
  }
}

void find_accesses(Task& task) {
  task.reads.clear();
  task.writes.clear();
  std::vector<c10::IValue> values;
  for (const Operand& operand : task.arguments) {
    const auto* value = std::get_if<c10::IValue>(&operand);
    values.push_back(value ? *value : c10::IValue());
  }
  std::unordered_set<BufferId> given;
  for (std::size_t i = 0; i < task.arguments.size(); ++i) {
    for_each_ref(task.arguments[i], [&](const TensorRef& ref) {
      given.insert(ref.buffer);
      task.reads.push_back(ref);
      if (is_written(task.op, i, values)) task.writes.push_back(ref);
    });
  }
  for (const Operand& result : task.results) {
    for_each_ref(result, [&](const TensorRef& ref) {
      if (!given.contains(ref.buffer)) task.writes.push_back(ref);
    });
  }
}

}  // namespace nimble
