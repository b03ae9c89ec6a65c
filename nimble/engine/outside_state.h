#pragma once

#include <ATen/core/Generator.h>

#include <span>
#include <vector>

#include "nimble/backend/executable.h"

namespace nimble {

// A copy of everything that a replay of a program changes besides its results: outside tensors and inputs that it
// writes, and the random generators it draws from. Lets a run be done twice, or undone.
class OutsideState {
 public:
  static OutsideState save(const Program& program, std::span<const at::Tensor> inputs);

  // Writes the saved bytes and generator states back.
  void restore() const;

  // Whether the tensors and generators are now what `other` saved; otherwise what differs first.
  std::optional<std::string> difference(const OutsideState& other) const;

  // The same places as they are now.
  OutsideState save_again() const;

 private:
  struct Place {
    at::Tensor tensor, copy;
  };
  struct GeneratorPlace {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<Place> tensors_;
  std::vector<GeneratorPlace> generators_;
};

// Same type, shape and bytes; NaNs are equal where their bits are.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace nimble
