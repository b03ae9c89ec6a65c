#pragma once

#include <span>
#include <vector>

#include "nimble/backend/executable.h"

namespace nimble {

// How many milliseconds replays take, by executable and round. In each round every one is timed once, so that
// a busy machine slows all of them alike; on a CPU after a replay that does not count. Three rounds at least,
// then as many as begin within the time, up to `most`.
std::vector<std::vector<double>> time_in_turn(std::span<Executable* const> executables,
                                              std::span<const at::Tensor> inputs, double seconds,
                                              std::size_t most);

}  // namespace nimble
