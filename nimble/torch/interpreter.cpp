#include "nimble/torch/interpreter.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nimble/core/error.h"
#include "nimble/torch/bind_operand.h"
#include "nimble/torch/operator_facts.h"

namespace nimble {
namespace {

bool same_layout(const at::Tensor& tensor, const TensorRef& ref) {
  return tensor.sizes() == at::IntArrayRef(ref.sizes) && tensor.strides() == at::IntArrayRef(ref.strides) &&
         tensor.storage_offset() == ref.offset && tensor.scalar_type() == ref.dtype;
}

// Dimensions of size one say nothing about a layout.
std::vector<std::size_t> real_dimensions(const TensorRef& ref) {
  std::vector<std::size_t> dimensions;
  for (std::size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.sizes[d] != 1) dimensions.push_back(d);
  }
  return dimensions;
}

// `ref` looks at `whole` through slices of its dimensions and dimensions of size one put in or left out. The
// same elements of a tensor that is `whole` in another layout: none if `ref` is another kind of view.
std::optional<TensorRef> translate(const TensorRef& ref, const TensorRef& whole, const TensorRef& actual) {
  if (ref.dtype != whole.dtype) return std::nullopt;
  TensorRef result = ref;
  const auto wanted = real_dimensions(ref), there = real_dimensions(whole);
  // Each dimension of the ref is a slice of one of the whole, in order; a dimension of the whole that is left
  // out is one index of it.
  std::int64_t offset = ref.offset - whole.offset;
  std::size_t next = 0;
  std::vector<std::optional<std::size_t>> slice_of(whole.sizes.size());
  for (const std::size_t d : there) {
    if (next == wanted.size()) break;
    if (whole.strides[d] == ref.strides[wanted[next]] && ref.sizes[wanted[next]] <= whole.sizes[d]) {
      slice_of[d] = wanted[next++];
    }
  }
  if (next != wanted.size() || offset < 0) return std::nullopt;
  auto by_stride = there;
  std::sort(by_stride.begin(), by_stride.end(),
            [&](std::size_t a, std::size_t b) { return whole.strides[a] > whole.strides[b]; });
  std::int64_t moved = 0;
  for (const std::size_t d : by_stride) {
    if (whole.strides[d] <= 0) return std::nullopt;
    const std::int64_t index = offset / whole.strides[d];
    const std::int64_t size = slice_of[d] ? ref.sizes[*slice_of[d]] : 1;
    if (index + size > whole.sizes[d]) return std::nullopt;
    offset -= index * whole.strides[d];
    moved += index * actual.strides[d];
    if (slice_of[d]) result.strides[*slice_of[d]] = actual.strides[d];
  }
  if (offset != 0) return std::nullopt;
  result.offset = actual.offset + moved;
  return result;
}

// Of what escapes: whether a part of a program before this one made it.
bool is_read_before_made(const Program& program, BufferId buffer) {
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.reads)
      if (ref.buffer == buffer) return true;
    for (const TensorRef& ref : task.writes)
      if (ref.buffer == buffer) return false;
  }
  return true;
}

}  // namespace

Interpreter::Interpreter(const Program& program, std::span<const at::Tensor> inputs, Call call)
    : program_(program),
      inputs_(inputs.begin(), inputs.end()),
      call_(std::move(call)),
      places_(program.buffers.size()) {
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    const bool made_here = buffer.kind == BufferKind::kEscaped &&
                           !is_read_before_made(program, BufferId{static_cast<std::uint32_t>(b)});
    if (!buffer.outside.defined() || made_here) continue;
    places_[b] = {buffer.outside, describe(buffer.outside, BufferId{static_cast<std::uint32_t>(b)})};
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    Place& place = places_[program.inputs[i].buffer.index()];
    if (!place.tensor.defined()) place = {inputs_[i], program.inputs[i]};
  }
  find_last_uses();
}

void Interpreter::plain_call(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Task*) {
  op.callBoxed(stack);
}

void Interpreter::find_last_uses() {
  std::vector<std::optional<std::size_t>> last(program_.buffers.size());
  for (std::size_t i = 0; i < program_.tasks.size(); ++i) {
    for (const TensorRef& ref : program_.tasks[i].reads) last[ref.buffer.index()] = i;
    for (const TensorRef& ref : program_.tasks[i].writes) last[ref.buffer.index()] = i;
  }
  for (const Output& output : program_.outputs) last[output.ref.buffer.index()].reset();
  last_uses_.resize(program_.tasks.size());
  for (std::uint32_t b = 0; b < last.size(); ++b) {
    if (last[b] && program_.buffers[b].kind == BufferKind::kInternal)
      last_uses_[*last[b]].push_back(BufferId{b});
  }
}

void Interpreter::run() {
  for (std::size_t i = 0; i < program_.tasks.size(); ++i) {
    run(program_.tasks[i]);
    for (const BufferId buffer : last_uses_[i]) places_[buffer.index()] = {};
  }
}

void Interpreter::run(const Task& task) {
  ThreadStateGuard state;
  state.enter(task.state);
  torch::jit::Stack stack = arguments(task);
  call_(task.op, &stack, &task);
  const auto keep = [&](const TensorRef& ref, const at::Tensor& result) {
    Place& place = places_[ref.buffer.index()];
    if (place.tensor.defined()) return;
    if (result.sizes() != at::IntArrayRef(ref.sizes) || result.scalar_type() != ref.dtype) {
      throw Error("[nimble::rewrite] " + task.op.operator_name().name + " gives " +
                  to_string(describe(result, ref.buffer)) + " where " + to_string(ref) + " was expected");
    }
    place = {result, ref};
  };
  for (std::size_t r = 0; r < task.results.size(); ++r) {
    if (const auto* ref = std::get_if<TensorRef>(&task.results[r])) {
      keep(*ref, stack[r].toTensor());
    } else if (const auto* list = std::get_if<TensorRefList>(&task.results[r])) {
      for (std::size_t e = 0; e < list->refs.size(); ++e) {
        if (list->refs[e]) keep(*list->refs[e], stack[r].toListRef()[e].toTensor());
      }
    }
  }
  for (const TensorRef& ref : task.writes) places_[ref.buffer.index()].as_said = at::Tensor();
}

torch::jit::Stack Interpreter::arguments(const Task& task) {
  const bool as_said = may_need_its_layout(task.op);
  std::vector<at::Tensor> given;
  torch::jit::Stack stack;
  for (std::size_t a = 0; a < task.arguments.size(); ++a) {
    const Operand& operand = task.arguments[a];
    const auto give = [&](const TensorRef& ref) {
      const std::size_t twin = task.twins.empty() ? given.size() : task.twins[given.size()];
      given.push_back(twin < given.size() ? given[twin] : look(ref, is_written(task.op, a), as_said));
      return given.back();
    };
    stack.push_back(bind_operand(operand, give));
  }
  return stack;
}

at::Tensor Interpreter::look(const TensorRef& ref, bool to_write, bool as_said) {
  const c10::InferenceMode ordinary(false);
  Place& place = places_[ref.buffer.index()];
  if (!place.tensor.defined()) make_room(ref);
  if (same_layout(place.tensor, place.said)) return materialize(ref, place.tensor.storage());
  TensorRef actual = describe(place.tensor, ref.buffer);
  const bool only_moved = actual.strides == place.said.strides;  // an argument at another place of its memory
  if (only_moved) {
    TensorRef moved = ref;
    moved.offset += actual.offset - place.said.offset;
    return materialize(moved, place.tensor.storage());
  }
  if (!as_said) {
    if (const auto translated = translate(ref, place.said, actual)) {
      return materialize(*translated, place.tensor.storage());
    }
  }
  if (to_write) {
    throw Error("[nimble::rewrite] a tensor is written through a view that its new layout does not have");
  }
  return materialize(ref, copy_as_said(place).storage());
}

at::Tensor Interpreter::copy_as_said(Place& place) {
  if (place.as_said.defined()) return place.as_said;
  static const auto empty = find_operator("aten::empty_strided");
  static const auto copy = find_operator("aten::copy_");
  const TensorRef& said = place.said;
  if (said.offset != 0) throw Error("[nimble::rewrite] a result that does not begin where its memory does");
  torch::jit::Stack stack{c10::IValue(at::IntArrayRef(said.sizes)),
                          c10::IValue(at::IntArrayRef(said.strides)),
                          said.dtype,
                          c10::IValue(),
                          place.tensor.device(),
                          c10::IValue()};
  call_(empty, &stack, nullptr);
  place.as_said = stack.front().toTensor();
  stack = {place.as_said, place.tensor, false};
  call_(copy, &stack, nullptr);
  return place.as_said;
}

// Memory that was handed out unfilled (torch.empty) has no task that makes it.
void Interpreter::make_room(const TensorRef& ref) {
  static const auto empty = find_operator("aten::empty_strided");
  const Buffer& buffer = program_.buffer(ref.buffer);
  const auto bytes = static_cast<std::int64_t>(buffer.bytes);
  torch::jit::Stack stack{c10::IValue(at::IntArrayRef{bytes}),
                          c10::IValue(at::IntArrayRef{1}),
                          at::kByte,
                          c10::IValue(),
                          buffer.device,
                          c10::IValue()};
  call_(empty, &stack, nullptr);
  TensorRef whole{.buffer = ref.buffer, .sizes = {bytes}, .strides = {1}, .dtype = at::kByte};
  places_[ref.buffer.index()] = {stack.front().toTensor(), std::move(whole)};
}

std::vector<at::Tensor> Interpreter::outputs() && {
  ThreadStateGuard state;
  if (!program_.tasks.empty()) state.enter(program_.tasks.back().state);
  std::vector<at::Tensor> outputs;
  for (const Output& output : program_.outputs) {
    at::Tensor tensor = look(output.ref, /*to_write=*/false, /*as_said=*/false);
    if (tensor.strides() != at::IntArrayRef(output.ref.strides)) {
      const TensorRef& ref = output.ref;
      tensor = materialize(ref, copy_as_said(places_[ref.buffer.index()]).storage());
    }
    outputs.push_back(std::move(tensor));
  }
  places_.clear();
  return outputs;
}

}  // namespace nimble
