#pragma once

#include <string>

#include "nimble/torch/program.h"

namespace nimble {

// Throws Error, naming `rewrite`, unless `program` is one that can be run: every task has what its operator's
// schema asks for, every ref lies inside its buffer, nothing is read before it was written, and results look
// as those of `before` do.
void check_program(const Program& program, const Program& before, std::string_view rewrite);

}  // namespace nimble
