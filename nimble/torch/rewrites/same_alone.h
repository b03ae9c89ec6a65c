#pragma once

#include <span>

#include "nimble/torch/program.h"

namespace nimble {

// Whether `one` gives the bits that `several` give, one after the other, for all that it writes; of a NaN
// only that it is one counts. Both are run on memory of their own with numbers that are made up, the same for
// both: nothing of anybody's is read or written. Tensors that the tasks look at must be the same one or have
// nothing in common, unless they are only read. False also where one of them fails.
bool same_alone(std::span<const Task> several, const Task& one, std::span<const Buffer> buffers);

}  // namespace nimble
