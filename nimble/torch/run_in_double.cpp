#include "nimble/torch/run_in_double.h"

#include <ATen/ATen.h>

#include <optional>

#include "nimble/torch/interpreter.h"

namespace nimble {
namespace {

using Types = std::vector<std::optional<at::ScalarType>>;

// By buffer, the type that becomes float64; none where it holds something else. No answer at all if one
// buffer is looked at as two types.
std::optional<Types> types_to_widen(const Program& program) {
  Types types(program.buffers.size());
  bool mixed = false;
  const auto look = [&](const TensorRef& ref) {
    auto& type = types[ref.buffer.index()];
    if (!type) type = ref.dtype;
    mixed |= *type != ref.dtype;
  };
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.reads) look(ref);
    for (const TensorRef& ref : task.writes) look(ref);
  }
  for (const TensorRef& ref : program.inputs) look(ref);
  for (const Output& output : program.outputs) look(output.ref);
  if (mixed) return std::nullopt;
  for (auto& type : types) {
    if (type && (!c10::isFloatingType(*type) || *type == at::kDouble)) type.reset();
  }
  return types;
}

// The same view of other memory, which holds elements of another type.
at::Tensor same_view(const at::Tensor& tensor, const c10::Storage& memory, at::ScalarType type) {
  TensorRef same = describe(tensor, {});
  same.requires_grad = false;
  same.dtype = type;
  return materialize(same, memory);
}

// The same view of a copy of all that the tensor's storage holds, as float64 if `widen`.
at::Tensor copied(const at::Tensor& tensor, bool widen) {
  const c10::InferenceMode ordinary(false);
  const auto elements = static_cast<std::int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  TensorRef whole;
  whole.sizes = {elements};
  whole.strides = {1};
  whole.dtype = tensor.scalar_type();
  const auto type = widen ? at::kDouble : whole.dtype;
  const at::Tensor copy =
      materialize(whole, tensor.storage()).to(type, /*non_blocking=*/false, /*copy=*/true);
  return same_view(tensor, copy.storage(), type);
}

// Whether what a run left has the elements of `tensor` in the same places. An operator may lay a result in
// float64 out otherwise; memory that was made without values is so many bytes, looked at as recorded.
bool lies_as(const at::Tensor& tensor, const at::Tensor& left, at::ScalarType type) {
  if (left.scalar_type() != type) return left.scalar_type() == at::kByte;
  return left.sizes() == tensor.sizes() && left.strides() == tensor.strides() &&
         left.storage_offset() == tensor.storage_offset();
}

class Widening {
 public:
  Widening(const Program& program, const Types& types) : program_(program), types_(types) {}

  Program run() && {
    for (std::size_t b = 0; b < types_.size(); ++b) {
      Buffer& buffer = program_.buffers[b];
      if (types_[b]) buffer.bytes = buffer.bytes / c10::elementSize(*types_[b]) * sizeof(double);
      if (!buffer.outside.defined()) continue;
      buffer.outside = copied(buffer.outside, types_[b].has_value());
      buffer.address = buffer.outside.storage().mutable_data();
    }
    for (Task& task : program_.tasks) {
      for (std::size_t a = 0; a < task.arguments.size(); ++a) {
        widen(task.arguments[a], task.op.schema().arguments()[a]);
      }
      for (Operand& result : task.results) widen(result);
      for (TensorRef& ref : task.reads) widen(ref);
      for (TensorRef& ref : task.writes) widen(ref);
    }
    for (TensorRef& ref : program_.inputs) widen(ref);
    for (Output& output : program_.outputs) widen(output.ref);
    return std::move(program_);
  }

 private:
  void widen(TensorRef& ref) {
    if (types_[ref.buffer.index()]) ref.dtype = at::kDouble;
  }
  void widen(Operand& operand) {
    if (auto* ref = std::get_if<TensorRef>(&operand)) widen(*ref);
    if (auto* list = std::get_if<TensorRefList>(&operand)) {
      for (auto& element : list->refs)
        if (element) widen(*element);
    }
  }
  // A type that is asked for by an argument is widened too.
  void widen(Operand& operand, const c10::Argument& argument) {
    widen(operand);
    auto* value = std::get_if<c10::IValue>(&operand);
    c10::TypePtr type = argument.real_type();
    if (type->kind() == c10::TypeKind::OptionalType)
      type = type->castRaw<c10::OptionalType>()->getElementType();
    if (!value || !value->isInt() || type->kind() != c10::TypeKind::ScalarTypeType) return;
    if (c10::isFloatingType(value->toScalarType())) *value = at::kDouble;
  }

  Program program_;
  const Types& types_;
};

}  // namespace

at::Tensor RunInDouble::in_place_of(const at::Tensor& tensor) const {
  if (!tensor.defined()) return {};
  const auto found = outside.find(tensor.storage().unsafeGetStorageImpl());
  if (found == outside.end()) return {};
  const at::Tensor& there = found->second;
  const auto elements = [](const at::Tensor& t) { return t.storage().nbytes() / t.itemsize(); };
  if (elements(there) < elements(tensor)) return {};  // not all of the memory that the recorded one had
  return same_view(tensor, there.storage(), there.scalar_type());
}

std::optional<RunInDouble> run_in_double(const Program& program, std::span<const at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  for (const Task& task : program.tasks) {
    if (task.draw) return std::nullopt;
  }
  const auto types = types_to_widen(program);
  if (!types) return std::nullopt;
  try {
    const Program wide = Widening(program, *types).run();
    std::vector<at::Tensor> arguments;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      arguments.push_back(copied(inputs[i], (*types)[program.inputs[i].buffer.index()].has_value()));
    }
    Interpreter interpreter(wide, arguments);
    interpreter.run();
    RunInDouble run;
    const auto keep = [&](const at::Tensor& tensor, const at::Tensor& left, BufferId buffer) {
      const auto type = (*types)[buffer.index()] ? at::kDouble : tensor.scalar_type();
      if (!lies_as(tensor, left, type)) return;
      run.outside.emplace(tensor.storage().unsafeGetStorageImpl(), same_view(tensor, left.storage(), type));
    };
    for (std::uint32_t b = 0; b < program.buffers.size(); ++b) {
      const at::Tensor& outside = program.buffers[b].outside;
      const at::Tensor& left = interpreter.tensor_of(BufferId{b});
      if (outside.defined() && left.defined()) keep(outside, left, BufferId{b});
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) keep(inputs[i], arguments[i], program.inputs[i].buffer);
    run.results = std::move(interpreter).outputs();
    return run;
  } catch (const std::exception&) {  // some operator knows no float64
    return std::nullopt;
  }
}

}  // namespace nimble
