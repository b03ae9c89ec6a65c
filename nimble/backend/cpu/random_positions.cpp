#include "nimble/backend/cpu/random_positions.h"

#include "nimble/torch/outside_state.h"

namespace nimble::cpu {
namespace {

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

RandomPositions::RandomPositions(const Program& program)
    : keep_after_(program.tasks.size()), set_before_(program.tasks.size()) {
  const auto keep = [&](const Draw& draw) {
    return &kept_.try_emplace({draw.generator.unsafeGetGeneratorImpl(), draw.position}, Kept{draw.generator})
                .first->second;
  };
  std::map<const c10::GeneratorImpl*, std::size_t> drawn;  // so far, which is where a generator is by itself
  for (std::size_t t = 0; t < program.tasks.size(); ++t) {
    const auto& draw = program.tasks[t].draw;
    if (!draw) continue;
    std::size_t& position = drawn[draw->generator.unsafeGetGeneratorImpl()];
    if (draw->position != position) set_before_[t] = keep(*draw);
    ++position;
  }
  for (const Draw& end : program.generators) {
    if (end.position != drawn[end.generator.unsafeGetGeneratorImpl()]) set_at_end_.push_back(keep(end));
  }
  drawn.clear();
  for (std::size_t t = 0; t < program.tasks.size(); ++t) {
    const auto& draw = program.tasks[t].draw;
    if (!draw) continue;
    const auto* generator = draw->generator.unsafeGetGeneratorImpl();
    const auto found = kept_.find({generator, ++drawn[generator]});
    if (found != kept_.end()) keep_after_[t] = &found->second;
  }
}

void RandomPositions::begin() {
  for (auto& [key, kept] : kept_) {
    if (key.second == 0) kept.state = state_of(kept.generator);
  }
}

void RandomPositions::before(TaskId task) {
  if (Kept* kept = set_before_[task.index()]) set_state(kept->generator, kept->state);
}

void RandomPositions::after(TaskId task) {
  if (Kept* kept = keep_after_[task.index()]) kept->state = state_of(kept->generator);
}

void RandomPositions::end() {
  for (Kept* kept : set_at_end_) set_state(kept->generator, kept->state);
}

}  // namespace nimble::cpu
