#pragma once

#include <span>
#include <vector>

#include "nimble/backend/cuda/captured_graph.h"

namespace nimble::cuda {

// Captures the program once more, as `issue_all` issues it on `streams`, with events between tasks; then
// replays that once to warm up and `count` times to be timed, and calls `read_events` after each of these.
// What the replays change outside is put back. The program's device must be the current one.
void replay_timed(DeviceProgram& program, std::span<const at::Tensor> inputs,
                  std::vector<cudaStream_t> streams, IssueAll issue_all, std::size_t count,
                  c10::function_ref<void()> read_events);

// Events that know when they were recorded.
std::vector<Event> timing_events(std::size_t count);

}  // namespace nimble::cuda
