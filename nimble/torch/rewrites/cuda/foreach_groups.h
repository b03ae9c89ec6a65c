#pragma once

#include <vector>

#include "nimble/torch/rewrites/cuda/foreach_calls.h"

namespace nimble {

// Foreach tasks that one kernel can do, in their order.
struct ForeachGroup {
  std::vector<TaskId> members;
  std::vector<ForeachCall> calls;  // of the members
};

// All groups of a program, none of which has a member in common with another. The tasks of each can be done
// at once where the last of them stands: whatever lies in between has nothing to do with them. They work on
// lists with the same tensors, or the like, at the same places, so that none needs to know what is done at
// another place.
std::vector<ForeachGroup> foreach_groups(const Program& program);

}  // namespace nimble
