#pragma once

#include <optional>
#include <string>

#include "nimble/torch/program.h"

namespace nimble {

// How two recordings of one function differ, naming the first task that does; nothing if replaying either is
// the same. Finds what changed on the host in between: a counter, a branch, a tensor that was replaced.
struct Difference {
  std::string text;
  std::optional<std::size_t> task = {};  // of the second program, where there is one to name
};
std::optional<Difference> first_difference(const Program& first, const Program& second);

}  // namespace nimble
