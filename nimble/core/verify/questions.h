#pragma once

#include <cstdint>
#include <vector>

#include "nimble/core/verify/step_order.h"

namespace nimble::verification {

// "Does `before` happen before `after`?", asked on behalf of a subject (an edge, a pair of buffers).
struct Question {
  Node before;
  Node after;
  std::uint32_t subject;
};

// The subjects of the questions whose answer is no; sorted, each once.
//
// All questions are answered together so that no table of all pairs is ever held: sweeps over the nodes carry
// one bit for each of 512 `before` nodes. 64 bytes a node; time O(nodes * edges / 512) at worst, and close to
// linear for long and narrow schedules, where a sweep soon reaches a point that comes after all of its 512.
std::vector<std::uint32_t> subjects_not_ordered(const StepOrder& order, std::vector<Question> questions);

}  // namespace nimble::verification
