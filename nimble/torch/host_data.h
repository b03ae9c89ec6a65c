#pragma once

#include <optional>

#include "nimble/torch/program.h"
#include "nimble/torch/record_error.h"

namespace nimble {

// A tensor that was made from host data is there once, and not made anew by each replay: none may write into
// it. Of a program whose constants are folded, so that what wrote there while recording is gone.
std::optional<Refusal> writes_host_data(const Program& program);

}  // namespace nimble
