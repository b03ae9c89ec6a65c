#pragma once

#include <ATen/core/Generator.h>

#include <span>
#include <unordered_set>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// A copy of what a run changes besides its results: outside tensors and inputs that it writes, and the random
// generators it draws from. Lets a run be done twice, or undone.
class OutsideState {
 public:
  OutsideState() = default;  // of nothing yet: see keep

  // Everything that a replay of `program` on `inputs` changes.
  static OutsideState save(const Program& program, std::span<const at::Tensor> inputs);

  // Adds the whole storage of a tensor, or a generator, as it is now; does nothing if it is already there.
  void keep(const at::Tensor& tensor);
  void keep(const at::Generator& generator);

  // Writes the saved bytes and generator states back.
  void restore() const;
  // The same on the way out of something that failed. What it throws is left out: the device is in error,
  // which whatever is asked of it next will say.
  void try_restore() const noexcept;

  // Each saved place as it is now: the whole memory of a tensor, and generators.
  std::vector<at::Tensor> tensors() const;
  std::vector<at::Generator> generators() const;

 private:
  struct Place {
    at::Tensor bytes, copy;
    at::ScalarType dtype;  // of the tensor that was saved
  };
  struct GeneratorPlace {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<Place> tensors_;
  std::vector<GeneratorPlace> generators_;
  std::unordered_set<const void*> known_;
};

// The generator that a random operator with these arguments draws from: the one it is given, or the default
// one of the device.
at::Generator generator_of(const std::vector<Operand>& arguments, c10::Device device);

// A copy of the generator's state.
at::Tensor state_of(at::Generator generator);

// Same type, shape and bytes; NaNs are equal where their bits are.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace nimble
