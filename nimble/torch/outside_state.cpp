#include "nimble/torch/outside_state.h"

#include <ATen/ATen.h>

namespace nimble {

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state().clone();
}

at::Generator generator_of(const std::vector<Operand>& arguments, c10::Device device) {
  for (const Operand& argument : arguments) {
    const auto* value = std::get_if<c10::IValue>(&argument);
    if (value && value->isGenerator()) return value->toGenerator();
  }
  return at::globalContext().defaultGenerator(device);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() || a.device() != b.device()) return false;
  if (a.numel() == 0) return true;
  const at::NoGradGuard no_grad;
  const auto bytes = [](const at::Tensor& tensor) {
    // A tensor of one element counts as contiguous with any stride; only a copy is sure to have stride one.
    return tensor.detach()
        .resolve_conj()
        .resolve_neg()
        .clone(at::MemoryFormat::Contiguous)
        .view(-1)
        .view(at::kByte);
  };
  return at::equal(bytes(a), bytes(b));
}

OutsideState OutsideState::save(const Program& program, std::span<const at::Tensor> inputs) {
  OutsideState state;
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.writes) {
      const Buffer& buffer = program.buffer(ref.buffer);
      if (buffer.outside.defined()) state.keep(buffer.outside);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (program.inputs[i].buffer == ref.buffer) state.keep(inputs[i]);
      }
    }
    if (task.draw) state.keep(task.draw->generator);
  }
  return state;
}

void OutsideState::keep(const at::Tensor& tensor) {
  if (!known_.insert(tensor.storage().unsafeGetStorageImpl()).second) return;
  const at::NoGradGuard no_grad;
  const c10::InferenceMode ordinary(false);
  at::Tensor bytes = all_bytes_of(tensor.storage());
  at::Tensor copy = bytes.clone();
  tensors_.push_back({std::move(bytes), std::move(copy), tensor.scalar_type()});
}

void OutsideState::keep(const at::Generator& generator) {
  if (!known_.insert(generator.unsafeGetGeneratorImpl()).second) return;
  generators_.push_back({generator, state_of(generator)});
}

void OutsideState::restore() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> places, copies;  // many of them with one kernel
  for (const Place& place : tensors_) {
    places.push_back(place.bytes);
    copies.push_back(place.copy);
  }
  if (!places.empty()) at::_foreach_copy_(places, copies);
  for (const GeneratorPlace& place : generators_) {
    at::Generator generator = place.generator;
    const std::lock_guard lock(generator.mutex());
    generator.set_state(place.state);
  }
}

void OutsideState::try_restore() const noexcept {
  try {
    restore();
  } catch (const std::exception&) {
  }
}

std::vector<at::Tensor> OutsideState::tensors() const {
  std::vector<at::Tensor> tensors;
  for (const Place& place : tensors_) {
    const auto size = static_cast<std::int64_t>(c10::elementSize(place.dtype));
    tensors.push_back(place.bytes.numel() % size == 0 ? place.bytes.view(place.dtype) : place.bytes);
  }
  return tensors;
}

std::vector<at::Generator> OutsideState::generators() const {
  std::vector<at::Generator> generators;
  for (const GeneratorPlace& place : generators_) generators.push_back(place.generator);
  return generators;
}

}  // namespace nimble
