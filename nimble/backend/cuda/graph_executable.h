#pragma once

#include <memory>

#include "nimble/backend/executable.h"

namespace nimble::cuda {

// The whole schedule as one CUDA graph of many streams, launched at once on the caller's current stream.
std::unique_ptr<Executable> make_graph_executable(ExecutionPlan plan, const BindOptions& options);

}  // namespace nimble::cuda
