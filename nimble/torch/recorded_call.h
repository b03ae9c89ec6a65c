#pragma once

#include "nimble/torch/program_builder.h"
#include "nimble/torch/recorded_values.h"

// What a ProgramBuilder keeps to itself.
namespace nimble {

// A storage we know. Held weakly: its address stays taken, so that no new storage is mistaken for it, while
// its memory goes as soon as PyTorch lets go of it.
struct ProgramBuilder::Tracked {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  BufferId buffer;
  const void* data = nullptr;  // a storage that was resized is a new buffer
};

// An operator call that is being recorded.
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

}  // namespace nimble
