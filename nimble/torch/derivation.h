#pragma once

#include <span>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// Tensors that a rewrite made ahead of time from tensors outside, such as weights with a batch norm folded
// into them, and how to make them again. `results[i]` holds what the i-th output of `program` was; its
// address never changes.
struct Derivation {
  Program program;
  std::vector<at::Tensor> results;
};

// Makes the results again, in place, from what the outside tensors hold now.
void derive(const Derivation& derivation);

// Makes everything again that `program` derived from outside tensors, including what operators keep packed.
void derive_all(const Program& program);

// The outside tensors that a program's derived tensors come from, each once.
std::vector<at::Tensor> derived_from(const Program& program);

// Whether a change of this tensor's values can be noticed: tensors made under inference_mode do not count
// their versions, so nothing may be derived from them.
bool counts_versions(const at::Tensor& tensor);

// Notices that one of many tensors was written to since the last look, by their version counters.
class Versions {
 public:
  explicit Versions(std::span<const at::Tensor> tensors);

  // Whether all are as they were at the last `look`, or when this was made. Some nanoseconds for each tensor.
  bool unchanged() const;
  void look();

 private:
  // The counter itself, which a tensor shares: one look at memory for each, not one at the tensor as well.
  struct Seen {
    c10::VariableVersion counter;
    std::uint32_t version;
  };
  std::vector<Seen> seen_;
};

}  // namespace nimble
