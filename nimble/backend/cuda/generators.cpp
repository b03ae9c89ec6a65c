#include "nimble/backend/cuda/generators.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/InferenceMode.h>

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

std::uint64_t position_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_offset();
}

void move_to(at::Generator& generator, std::uint64_t position) {
  const std::lock_guard lock(generator.mutex());
  generator.set_offset(position);
}

}  // namespace

DrawSequence::DrawSequence(const Program& program, const Draw& end) : end_(end.position) {
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const auto& draw = program.tasks[i].draw;
    if (draw && draw->generator == end.generator) draws_.push_back({TaskId{i}, draw->position});
  }
}

std::optional<std::size_t> DrawSequence::number_of(TaskId task) const {
  const auto found =
      std::find_if(draws_.begin(), draws_.end(), [&](const OneDraw& draw) { return draw.task == task; });
  if (found == draws_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - draws_.begin());
}

std::vector<std::int64_t> DrawSequence::positions() const {
  std::vector<std::int64_t> positions = {0};
  for (const OneDraw& draw : draws_) positions.push_back(positions[draw.from] + draw.amount);
  return positions;
}

std::vector<std::int64_t> DrawSequence::starts() const {
  const std::vector<std::int64_t> reached = positions();
  std::vector<std::int64_t> starts;
  for (const OneDraw& draw : draws_) starts.push_back(reached[draw.from]);
  return starts;
}

bool DrawSequence::is_empty() const {
  return std::ranges::all_of(draws_, [](const OneDraw& draw) { return draw.amount == 0; });
}

GraphGenerators::GraphGenerators(const Program& program) {
  const c10::InferenceMode ordinary(false);  // later replays write to these tensors in any mode
  for (const Draw& end : program.generators) {
    Source source{.generator = end.generator,
                  .state = StateFinder::state_of(end.generator),
                  .sequence = DrawSequence(program, end),
                  .seed = {},
                  .positions = {}};
    const auto options = at::TensorOptions(end.generator.device()).dtype(at::kLong);
    source.seed = at::zeros({1}, options);
    source.positions = at::zeros({static_cast<std::int64_t>(source.sequence.size())}, options);
    sources_.push_back(std::move(source));
  }
}

GraphGenerators::Drawing::Drawing(GraphGenerators& generators, TaskId task) {
  for (Source& source : generators.sources_) {
    const auto number = source.sequence.number_of(task);
    if (!number) continue;
    source_ = &source;
    number_ = *number;
  }
  const at::Tensor position = source_->positions.select(0, static_cast<std::int64_t>(number_));
  const std::lock_guard lock(source_->generator.mutex());
  source_->state->capturing_ = true;
  source_->state->offset_intragraph_ = 0;
  outer_seed_ = std::exchange(source_->state->seed_extragraph_, source_->seed);
  outer_position_ = std::exchange(source_->state->offset_extragraph_, position);
}

GraphGenerators::Drawing::~Drawing() {
  const std::lock_guard lock(source_->generator.mutex());
  source_->sequence.drew(number_, static_cast<std::int64_t>(source_->state->offset_intragraph_));
  source_->state->capturing_ = false;
  source_->state->seed_extragraph_ = outer_seed_;
  source_->state->offset_extragraph_ = outer_position_;
}

void GraphGenerators::finish() {
  const c10::InferenceMode ordinary(false);
  for (Source& source : sources_) {
    source.starts = at::tensor(source.sequence.starts(), at::kLong).to(source.positions.device());
    source.drawn_together = static_cast<std::uint64_t>(source.sequence.end());
    source.is_drawn_from = !source.sequence.is_empty();
  }
}

void GraphGenerators::advance() {
  for (Source& source : sources_) {
    if (!source.is_drawn_from) continue;
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
  for (const Draw& end : program.generators) {
    sources_.push_back({end.generator, DrawSequence(program, end)});
  }
}

void LaunchedDraws::before_measured() { begin(); }

void LaunchedDraws::after_measured(TaskId task) {
  for (Source& source : sources_) {
    if (const auto number = source.sequence.number_of(task)) {
      source.sequence.drew(*number,
                           static_cast<std::int64_t>(position_of(source.generator) - source.position));
    }
  }
}

void LaunchedDraws::begin() {
  for (Source& source : sources_) {
    source.position = position_of(source.generator);
    source.starts = source.sequence.starts();
  }
}

void LaunchedDraws::before(TaskId task) {
  for (Source& source : sources_) {
    if (const auto number = source.sequence.number_of(task)) {
      move_to(source.generator, source.position + static_cast<std::uint64_t>(source.starts[*number]));
    }
  }
}

void LaunchedDraws::end() {
  for (Source& source : sources_) {
    move_to(source.generator, source.position + static_cast<std::uint64_t>(source.sequence.end()));
  }
}

}  // namespace nimble::cuda
