#pragma once

#include <memory>

#include "nimble/backend/executable.h"

namespace nimble::cuda {

// The twin of the graph: the same schedule, issued stream by stream with events at every replay.
std::unique_ptr<Executable> make_stream_executable(ExecutionPlan plan, const BindOptions& options);

}  // namespace nimble::cuda
