#include "nimble/engine/measure_alone.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "nimble/backend/executable.h"
#include "nimble/core/error.h"
#include "nimble/core/schedule.h"
#include "nimble/engine/time_in_turn.h"
#include "nimble/torch/rewrites/convolution_settings.h"
#include "nimble/torch/rewrites/record_anew.h"

namespace nimble {
namespace {

// Neither zeros, which some kernels are faster with, nor anything at random, which would draw from the user's
// generator.
at::Tensor made_up(const Buffer& buffer, at::ScalarType dtype) {
  const auto elements = static_cast<std::int64_t>(buffer.bytes / c10::elementSize(dtype));
  const at::TensorOptions options = at::TensorOptions(buffer.device).dtype(dtype);
  if (!c10::isFloatingType(dtype)) return at::zeros({elements}, options);
  return (at::arange(elements, options.dtype(at::kInt)) % 17).to(dtype).div_(16).sub_(0.5);
}

struct Alone {
  Program program;
  Tensors inputs;
};

Alone as_program(std::span<const Buffer> buffers, std::span<const Task> tasks) {
  Alone alone;
  alone.program.buffers.assign(buffers.begin(), buffers.end());
  alone.program.tasks.assign(tasks.begin(), tasks.end());
  std::vector<bool> made(buffers.size()), read(buffers.size());
  for (const Task& task : tasks) {
    for (const TensorRef& ref : task.reads) {
      Buffer& buffer = alone.program.buffers[ref.buffer.index()];
      read[ref.buffer.index()] = true;
      if (buffer.outside.defined() || made[ref.buffer.index()]) continue;
      made[ref.buffer.index()] = true;
      alone.inputs.push_back(made_up(buffer, ref.dtype));
      buffer.kind = BufferKind::kInput;
      alone.program.inputs.push_back(describe(alone.inputs.back(), ref.buffer));
    }
    for (const TensorRef& ref : task.writes) made[ref.buffer.index()] = true;
  }
  for (Buffer& buffer : alone.program.buffers) buffer.returned = false;
  for (const Task& task : tasks) {
    for (const Operand& result : task.results) {
      for_each_ref(result, [&](const TensorRef& ref) {
        Buffer& buffer = alone.program.buffers[ref.buffer.index()];
        if (buffer.kind == BufferKind::kScratch || read[ref.buffer.index()]) return;
        buffer.returned = true;
        alone.program.outputs.push_back({.ref = ref});
      });
    }
  }
  return alone;
}

std::unique_ptr<Executable> bind_on_streams(const std::shared_ptr<const Program>& program, TaskGraph graph,
                                            StreamLimit limit, std::span<const at::Tensor> inputs) {
  Backend& backend = backend_for(program->device());
  MemoryDemand memory = memory_demand(*program, backend.alignment());
  Schedule schedule = plan(graph, memory.specs, limit);
  return backend.bind({program, std::move(graph), std::move(memory), std::move(schedule)},
                      {.alias_outputs = true, .example_inputs = Tensors(inputs.begin(), inputs.end())});
}

std::unique_ptr<Executable> bind_on_one_stream(const std::shared_ptr<const Program>& program,
                                               std::span<const at::Tensor> inputs) {
  return bind_on_streams(program, dependencies(*program), StreamLimit::at_most(1), inputs);
}

// In milliseconds.
std::vector<double> best_times(std::span<const std::unique_ptr<Executable>> executables,
                               std::span<const at::Tensor> inputs, double seconds) {
  constexpr std::size_t kMostRounds = 20;
  std::vector<Executable*> entrants;
  for (const auto& executable : executables) entrants.push_back(executable.get());
  std::vector<double> best;
  for (const auto& times : time_in_turn(entrants, inputs, seconds, kMostRounds)) {
    best.push_back(*std::min_element(times.begin() + 1, times.end()));  // the first round fills caches
  }
  return best;
}

// The tasks as a program of their own, over and over.
struct Repeated {
  std::shared_ptr<const Program> program;
  Tensors inputs;
  std::size_t times;
};
Repeated repeated(std::span<const Buffer> buffers, std::span<const Task> tasks) {
  // A kernel takes a few microseconds, and so does the launch of a graph: many in a row tell the one from the
  // other.
  constexpr std::size_t kInARow = 8;
  Alone alone = as_program(buffers, tasks);
  const std::size_t in_a_row = alone.program.device().is_cuda() ? kInARow : 1;
  alone.program.tasks.clear();
  for (std::size_t i = 0; i < in_a_row; ++i) {
    std::transform(tasks.begin(), tasks.end(), std::back_inserter(alone.program.tasks), unsearched);
  }
  auto program = std::make_shared<const Program>(record_anew(alone.program, alone.inputs));
  return {std::move(program), std::move(alone.inputs), in_a_row};
}

Nanoseconds time_of_one(const Repeated& repeated, const std::unique_ptr<Executable>& executable) {
  constexpr double kSeconds = 0.001;
  return static_cast<Nanoseconds>(best_times({&executable, 1}, repeated.inputs, kSeconds).front() * 1e6 /
                                  static_cast<double>(repeated.times));
}

}  // namespace

TaskGraph round_after_round(const TaskGraph& graph, std::size_t tasks_of_round) {
  std::vector<Edge> edges;
  const auto count = static_cast<std::uint32_t>(graph.task_count());
  for (std::uint32_t before = 0; before < count; ++before) {
    for (const TaskId after : graph.successors(TaskId{before})) edges.push_back({TaskId{before}, after});
    const std::size_t next_round = (before / tasks_of_round + 1) * tasks_of_round;
    for (std::size_t after = next_round; after < std::min<std::size_t>(next_round + tasks_of_round, count);
         ++after) {
      edges.push_back({TaskId{before}, TaskId{static_cast<std::uint32_t>(after)}});
    }
  }
  return graph.with_edges(edges);
}

Nanoseconds measure_alone(std::span<const Buffer> buffers, std::span<const Task> tasks) {
  const at::NoGradGuard no_grad;
  const Repeated repeated = nimble::repeated(buffers, tasks);
  return time_of_one(repeated, bind_on_one_stream(repeated.program, repeated.inputs));
}

Nanoseconds measure_side_by_side(std::span<const Buffer> buffers, std::span<const Task> tasks) {
  const at::NoGradGuard no_grad;
  const Repeated repeated = nimble::repeated(buffers, tasks);
  if (repeated.program->tasks.size() != repeated.times * tasks.size())
    throw Error("[nimble::rewrite] tasks that are measured side by side became others");
  TaskGraph graph = round_after_round(dependencies(*repeated.program), tasks.size());
  return time_of_one(
      repeated, bind_on_streams(repeated.program, std::move(graph), StreamLimit::maximum(), repeated.inputs));
}

Program record_alone(std::span<const Buffer> buffers, std::span<const Task> tasks) {
  const at::NoGradGuard no_grad;
  const Alone alone = as_program(buffers, tasks);
  return record_anew(alone.program, alone.inputs);
}

std::vector<double> time_programs(const std::vector<std::shared_ptr<const Program>>& programs,
                                  std::span<const at::Tensor> inputs, double seconds) {
  std::vector<std::unique_ptr<Executable>> executables;
  for (const auto& program : programs) executables.push_back(bind_on_one_stream(program, inputs));
  return best_times(executables, inputs, seconds);
}

}  // namespace nimble
