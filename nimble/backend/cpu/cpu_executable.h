#pragma once

#include <memory>

#include "nimble/backend/executable.h"

namespace nimble::cpu {

// Worker threads as streams, atomics as events. A schedule of one stream runs on the calling thread.
std::unique_ptr<Executable> make_cpu_executable(ExecutionPlan plan, const BindOptions& options);

}  // namespace nimble::cpu
