#pragma once

#include <optional>

#include "nimble/torch/program.h"
#include "nimble/torch/record_error.h"

namespace nimble {

// Memory from torch.empty that a task reads, or the program returns, although no task wrote to it: a kernel
// that was launched beside the dispatcher (torch.cuda.jiterator, Triton, CuPy, ctypes) filled it unseen. A
// replay would not launch that kernel, and answer with what the recording left there.
std::optional<Refusal> uses_unfilled_memory(const Program& program);

}  // namespace nimble
