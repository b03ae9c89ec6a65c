#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_map>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// Every state that random generators were seen in while recording, to notice when the function sets one back
// or seeds it.
class GeneratorSequences {
 public:
  // A generator is where its sequence begins, unless it was seen before.
  void begin(const at::Generator& generator);

  // Where in its sequence a generator is now; none if it was seeded, or set to a state never seen here.
  std::optional<std::size_t> position_of(const at::Generator& generator) const;

  // A task has drawn from it.
  void drew(const at::Generator& generator);

  // Where each is now, but for those that were seeded.
  std::vector<Draw> positions() const;

  // Where each is now that a task drew from; none if one of them was seeded.
  std::optional<std::vector<Draw>> ends() const;

 private:
  struct Sequence {
    at::Generator generator;
    struct Known {
      std::size_t position;
      at::Tensor state;
    };
    std::vector<Known> known = {};
    std::size_t draws = 0;
  };
  std::unordered_map<const c10::GeneratorImpl*, Sequence> sequences_;
};

}  // namespace nimble
