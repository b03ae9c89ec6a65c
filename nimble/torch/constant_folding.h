#pragma once

#include <span>

#include "nimble/torch/program.h"

namespace nimble {

// Drops the tasks whose results are the same at every call: those that read nothing but constants, draw
// nothing at random and write nothing that anybody else writes. `values[b]`, where defined, holds what buffer
// b contained at the end of the recording; it becomes the constant. The program's
// notes say which tasks were dropped.
Program fold_constants(Program program, std::span<const at::Tensor> values);

}  // namespace nimble
