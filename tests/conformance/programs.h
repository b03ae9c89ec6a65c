#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nimble::testing {

using Tensors = std::vector<at::Tensor>;

// A small function with everything it touches, on one device. Every replay of it must do what the function
// itself does: same results, same bits left in `outside`.
struct Subject {
  std::function<Tensors(const Tensors&)> function;
  std::function<Tensors()> fresh_inputs;
  Tensors outside;  // tensors that live outside and that it writes
};

struct NamedSubject {
  std::string name;
  std::function<Subject(c10::Device)> make;
};

// What every backend must get right, each once.
const std::vector<NamedSubject>& subjects();

// Those with branches, to try many schedules on.
Subject branchy_convnet(c10::Device device);
Subject parallel_matmul_chains(c10::Device device);
Subject dropout_in_branches(c10::Device device);
Subject updates_of_outside_tensors(c10::Device device);
Subject training_step(c10::Device device);

}  // namespace nimble::testing
