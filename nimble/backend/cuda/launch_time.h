#pragma once

#include "nimble/backend/cuda/captured_graph.h"
#include "nimble/core/task_graph.h"

namespace nimble::cuda {

// How long `cudaGraphLaunch` keeps the host: the median of some launches, each on an idle stream.
Nanoseconds launch_time(CapturedGraph& graph, cudaStream_t stream);

}  // namespace nimble::cuda
