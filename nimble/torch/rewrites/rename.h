#pragma once

#include <functional>
#include <unordered_map>

#include "nimble/torch/program.h"

namespace nimble {

// Buffers whose content is to be found in another one.
using Names = std::unordered_map<BufferId, BufferId>;

// Calls `change` for every tensor that a task has anything to do with.
void change_refs(Task& task, const std::function<void(TensorRef&)>& change);

// Makes a task look at the new places, or a program return them.
void rename(Task& task, const Names& names);
void rename_outputs(Program& program, const Names& names);

}  // namespace nimble
