#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nimble/core/task_graph.h"
#include "nimble/torch/program.h"

namespace nimble {

// How long these tasks take, one after the other on one stream and with nothing beside them: the best of
// several runs. Tensors that other tasks make are made up; those outside are read where they are, and nothing
// outside may be written.
Nanoseconds measure_alone(std::span<const Buffer> buffers, std::span<const Task> tasks);

// The same for tasks that wait for nothing of each other, each on a stream of its own: from the first that
// begins to the last that ends.
Nanoseconds measure_side_by_side(std::span<const Buffer> buffers, std::span<const Task> tasks);

// The same tasks, where each also waits for all of the round before it: what is measured over and over would
// otherwise begin before all of the last time has ended.
TaskGraph round_after_round(const TaskGraph& graph, std::size_t tasks_of_round);

// What these tasks allocate and give when they run alone, on tensors made up in the same way.
Program record_alone(std::span<const Buffer> buffers, std::span<const Task> tasks);

// How many milliseconds one replay of each program takes, on one stream: the best of several, taken in turn.
std::vector<double> time_programs(const std::vector<std::shared_ptr<const Program>>& programs,
                                  std::span<const at::Tensor> inputs, double seconds);

}  // namespace nimble
