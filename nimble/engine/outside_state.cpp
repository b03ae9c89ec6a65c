#include "nimble/engine/outside_state.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <unordered_set>

namespace nimble {
namespace {

// All bytes of the tensor's storage, whatever view of it the tensor is.
at::Tensor whole_storage(const at::Tensor& tensor) {
  TensorRef ref;
  ref.sizes = {static_cast<std::int64_t>(tensor.storage().nbytes())};
  ref.strides = {1};
  ref.dtype = at::kByte;
  return materialize(ref, tensor.storage());
}

std::vector<at::Generator> generators_of(const Program& program) {
  std::vector<at::Generator> generators;
  for (const Task& task : program.tasks) {
    if (!task.random) continue;
    std::optional<at::Generator> found;
    for (const Operand& argument : task.arguments) {
      const auto* value = std::get_if<c10::IValue>(&argument);
      if (value && value->isGenerator()) found = value->toGenerator();
    }
    if (!found) found = at::globalContext().defaultGenerator(program.device());
    if (std::find(generators.begin(), generators.end(), *found) == generators.end()) generators.push_back(*found);
  }
  return generators;
}

at::Tensor state_of(const at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state().clone();
}

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() || a.device() != b.device()) return false;
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(at::kByte);
  };
  if (a.numel() == 0) return true;
  return at::equal(bytes(a), bytes(b));
}

OutsideState OutsideState::save(const Program& program, std::span<const at::Tensor> inputs) {
  OutsideState state;
  std::unordered_set<BufferId> written;
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.writes) written.insert(ref.buffer);
  }
  const at::NoGradGuard no_grad;
  for (const BufferId id : written) {
    const Buffer& buffer = program.buffer(id);
    at::Tensor tensor = buffer.outside;
    for (std::size_t i = 0; i < inputs.size() && !tensor.defined(); ++i) {
      if (program.inputs[i].buffer == id && buffer.kind == BufferKind::kInput) tensor = inputs[i];
    }
    if (tensor.defined()) state.tensors_.push_back({whole_storage(tensor), whole_storage(tensor).clone()});
  }
  for (const at::Generator& generator : generators_of(program)) {
    state.generators_.push_back({generator, state_of(generator)});
  }
  return state;
}

void OutsideState::restore() const {
  const at::NoGradGuard no_grad;
  for (const Place& place : tensors_) place.tensor.copy_(place.copy);
  for (const GeneratorPlace& place : generators_) {
    at::Generator generator = place.generator;
    const std::lock_guard lock(generator.mutex());
    generator.set_state(place.state);
  }
}

OutsideState OutsideState::save_again() const {
  const at::NoGradGuard no_grad;
  OutsideState now;
  for (const Place& place : tensors_) now.tensors_.push_back({place.tensor, place.tensor.clone()});
  for (const GeneratorPlace& place : generators_) now.generators_.push_back({place.generator, state_of(place.generator)});
  return now;
}

std::optional<std::string> OutsideState::difference(const OutsideState& other) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!same_bits(tensors_[i].copy, other.tensors_[i].copy)) return "a tensor that the function writes to";
  }
  for (std::size_t i = 0; i < generators_.size(); ++i) {
    if (!same_bits(generators_[i].state, other.generators_[i].state)) return "the state of a random generator";
  }
  return std::nullopt;
}

}  // namespace nimble
