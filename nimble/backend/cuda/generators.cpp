#include "nimble/backend/cuda/generators.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <numeric>

#include "nimble/torch/outside_state.h"

namespace nimble::cuda {
namespace {

// PyTorch gives the state of a generator to graphs alone, so this poses as one for a moment.
class StateFinder final : public at::cuda::CUDAGraph {
 public:
  static c10::intrusive_ptr<at::CUDAGeneratorState> state_of(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    StateFinder finder;
    finder.register_generator_state(generator);
    return finder.captured_generator_states_.begin()->first;
  }
};

std::uint64_t position_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_offset();
}

void move_to(at::Generator& generator, std::uint64_t position) {
  const std::lock_guard lock(generator.mutex());
  generator.set_offset(position);
}

}  // namespace

std::vector<at::Generator> generators_of(const Program& program) {
  std::vector<at::Generator> generators;
  for (const Task& task : program.tasks) {
    if (!task.random) continue;
    const at::Generator generator = generator_of(task.arguments, program.device());
    if (std::find(generators.begin(), generators.end(), generator) == generators.end()) {
      generators.push_back(generator);
    }
  }
  return generators;
}

GraphGenerators::GraphGenerators(const Program& program) {
  std::size_t random_tasks = 0;
  for (const Task& task : program.tasks) {
    nth_.push_back(random_tasks);
    if (task.random) ++random_tasks;
  }
  const c10::InferenceMode ordinary(false);  // later replays write to these tensors in any mode
  const auto count = static_cast<std::int64_t>(random_tasks);
  for (const at::Generator& generator : generators_of(program)) {
    const auto options = at::TensorOptions(generator.device()).dtype(at::kLong);
    sources_.push_back({.generator = generator,
                        .state = StateFinder::state_of(generator),
                        .seed = at::zeros({1}, options),
                        .positions = at::zeros({count}, options),
                        .starts = {},
                        .drawn = std::vector<std::int64_t>(random_tasks)});
  }
}

GraphGenerators::Drawing::Drawing(GraphGenerators& generators, TaskId task)
    : generators_(generators), nth_(generators.nth_[task.index()]) {
  for (Source& source : generators_.sources_) {
    const at::Tensor position = source.positions.select(0, static_cast<std::int64_t>(nth_));
    const std::lock_guard lock(source.generator.mutex());
    source.state->capturing_ = true;
    source.state->offset_intragraph_ = 0;
    source.outer_seed = std::exchange(source.state->seed_extragraph_, source.seed);
    source.outer_position = std::exchange(source.state->offset_extragraph_, position);
  }
}

GraphGenerators::Drawing::~Drawing() {
  for (Source& source : generators_.sources_) {
    const std::lock_guard lock(source.generator.mutex());
    source.drawn[nth_] = static_cast<std::int64_t>(source.state->offset_intragraph_);
    source.state->capturing_ = false;
    source.state->seed_extragraph_ = std::exchange(source.outer_seed, {});
    source.state->offset_extragraph_ = std::exchange(source.outer_position, {});
  }
}

void GraphGenerators::finish() {
  const c10::InferenceMode ordinary(false);
  for (Source& source : sources_) {
    std::vector<std::int64_t> starts(source.drawn.size());
    std::exclusive_scan(source.drawn.begin(), source.drawn.end(), starts.begin(), std::int64_t{0});
    source.drawn_together = static_cast<std::uint64_t>(starts.back() + source.drawn.back());
    source.starts = at::tensor(starts, at::kLong).to(source.positions.device());
  }
}

void GraphGenerators::advance() {
  for (Source& source : sources_) {
    std::uint64_t seed, position;
    {
      const std::lock_guard lock(source.generator.mutex());
      seed = source.state->seed_;
      position = source.state->philox_offset_per_thread_;
      source.state->philox_offset_per_thread_ += source.drawn_together;
    }
    source.seed.fill_(static_cast<std::int64_t>(seed));
    at::add_out(source.positions, source.starts, static_cast<std::int64_t>(position));
  }
}

LaunchedDraws::LaunchedDraws(const Program& program) {
  for (const at::Generator& generator : generators_of(program)) {
    sources_.push_back({generator, std::vector<std::uint64_t>(program.tasks.size())});
  }
}

void LaunchedDraws::before_measured() { begin(); }

void LaunchedDraws::after_measured(TaskId task) {
  for (Source& source : sources_) {
    source.drawn[task.index()] = position_of(source.generator) - source.position;
  }
}

void LaunchedDraws::begin() {
  for (Source& source : sources_) source.position = position_of(source.generator);
}

void LaunchedDraws::before(TaskId task) {
  for (Source& source : sources_) {
    const auto first = source.drawn.begin();
    move_to(source.generator, std::accumulate(first, first + task.value, source.position));
  }
}

void LaunchedDraws::end() {
  for (Source& source : sources_) {
    move_to(source.generator, std::accumulate(source.drawn.begin(), source.drawn.end(), source.position));
  }
}

}  // namespace nimble::cuda
