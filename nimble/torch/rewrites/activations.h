#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// A function of one number that libraries can apply to the results of a convolution or product: by the names
// that oneDNN has in PyTorch, with its numbers.
struct Activation {
  std::string name;  // "relu", "hardtanh", "swish", …; "none" for the identity
  std::vector<double> numbers = {};
  std::string algorithm = "none";  // of gelu: "none" or "tanh"
};

// The activation that a task applies to its first argument, if it does nothing else.
std::optional<Activation> activation_of(const Task& task);

}  // namespace nimble
