#pragma once

#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// The parts of a program as programs of their own, to be replayed one after the other with something else in
// between (an optimizer's step on the host). Buffers keep their numbers. What one part makes and another
// looks at gets memory that outlives the parts. Each part has all the inputs, and the results wanted behind
// it.
//
// Refuses, with RecordError, a part that draws random numbers again that an earlier one drew.
std::vector<Program> split_into_parts(const Program& program);

}  // namespace nimble
