#include "nimble/backend/cuda/generators.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>

#include <algorithm>

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

void fill(const at::TensorBase& tensor, std::uint64_t value) {
  at::Tensor(tensor).fill_(static_cast<std::int64_t>(value));
}

}  // namespace

std::vector<at::Generator> generators_of(const Program& program) {
  std::vector<at::Generator> generators;
  for (const Task& task : program.tasks) {
    if (!task.random) continue;
    const at::Generator generator = generator_of(task.arguments, program.device());
    if (std::find(generators.begin(), generators.end(), generator) == generators.end())
      generators.push_back(generator);
  }
  return generators;
}

GraphGenerators::GraphGenerators(const Program& program) {
  for (const at::Generator& generator : generators_of(program)) {
    const auto options = at::TensorOptions(generator.device()).dtype(at::kLong);
    sources_.push_back({.generator = generator,
                        .state = StateFinder::state_of(generator),
                        .seed = at::zeros({1}, options),
                        .offset = at::zeros({1}, options)});
  }
}

GraphGenerators::Drawing::Drawing(GraphGenerators& generators) : generators_(generators) {
  for (Source& source : generators_.sources_) {
    const std::lock_guard lock(source.generator.mutex());
    source.state->capturing_ = true;
    source.state->offset_intragraph_ = source.drawn;
    std::swap(source.state->seed_extragraph_, source.seed);
    std::swap(source.state->offset_extragraph_, source.offset);
  }
}

GraphGenerators::Drawing::~Drawing() {
  for (Source& source : generators_.sources_) {
    const std::lock_guard lock(source.generator.mutex());
    source.drawn = source.state->offset_intragraph_;
    source.state->capturing_ = false;
    std::swap(source.state->seed_extragraph_, source.seed);
    std::swap(source.state->offset_extragraph_, source.offset);
  }
}

void GraphGenerators::advance() {
  for (Source& source : sources_) {
    std::uint64_t seed, offset;
    {
      const std::lock_guard lock(source.generator.mutex());
      seed = source.state->seed_;
      offset = source.state->philox_offset_per_thread_;
      source.state->philox_offset_per_thread_ += source.drawn;
    }
    fill(source.seed, seed);
    fill(source.offset, offset);
  }
}

}  // namespace nimble::cuda
