#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "nimble/torch/program.h"

namespace nimble::cuda {

// A storage as plain bytes, without a copy.
at::Tensor bytes_of(const c10::Storage& storage);

// A copy of what a run of the program changes outside of itself: tensors that it writes, and generators. Copies are
// made and put back on the current stream.
class WrittenState {
 public:
  explicit WrittenState(const Program& program);
  void restore();

 private:
  struct Place {
    at::Tensor outside, copy;
  };
  std::vector<Place> tensors_;
  struct GeneratorPlace {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<GeneratorPlace> generators_;
};

}  // namespace nimble::cuda
