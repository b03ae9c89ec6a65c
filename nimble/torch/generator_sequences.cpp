#include "nimble/torch/generator_sequences.h"

#include <algorithm>

#include "nimble/torch/outside_state.h"

namespace nimble {

void GeneratorSequences::begin(const at::Generator& generator) {
  const auto [sequence, first] =
      sequences_.try_emplace(generator.unsafeGetGeneratorImpl(), Sequence{generator});
  if (first) sequence->second.known.push_back({0, state_of(generator)});
}

std::optional<std::size_t> GeneratorSequences::position_of(const at::Generator& generator) const {
  const auto& known = sequences_.at(generator.unsafeGetGeneratorImpl()).known;
  const at::Tensor now = state_of(generator);
  const auto found = std::find_if(known.rbegin(), known.rend(),
                                  [&](const auto& seen) { return same_bits(seen.state, now); });
  return found == known.rend() ? std::nullopt : std::optional(found->position);
}

void GeneratorSequences::drew(const at::Generator& generator) {
  Sequence& sequence = sequences_.at(generator.unsafeGetGeneratorImpl());
  sequence.known.push_back({++sequence.draws, state_of(generator)});
}

std::vector<Draw> GeneratorSequences::positions() const {
  std::vector<Draw> positions;
  for (const auto& [impl, sequence] : sequences_) {
    if (const auto position = position_of(sequence.generator)) {
      positions.push_back({sequence.generator, *position});
    }
  }
  return positions;
}

std::optional<std::vector<Draw>> GeneratorSequences::ends() const {
  std::vector<Draw> ends;
  for (const auto& [impl, sequence] : sequences_) {
    if (sequence.draws == 0) continue;
    const auto position = position_of(sequence.generator);
    if (!position) return std::nullopt;
    ends.push_back({sequence.generator, *position});
  }
  return ends;
}

}  // namespace nimble
