#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "nimble/torch/program.h"

namespace nimble::cuda {

// Whether what is put on this stream goes into a graph instead of to the device. Also true of a capture that
// has failed and was not ended yet.
bool is_captured(cudaStream_t stream);

// Refuses, with RecordError, an operator that ran when the program was warmed up and fails in the capture.
// `reason` is what it said itself, if it said anything.
[[noreturn]] void refuse_in_graph(const Task& task, const std::string& reason = "");

}  // namespace nimble::cuda
