#pragma once

#include <map>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble::cpu {

// Sets CPU generators back where a recorded function did (checkpointing draws the same numbers twice). Costs
// nothing for programs that never do. Tasks that draw from one generator run one after the other, so what is
// kept for them needs no lock.
class RandomPositions {
 public:
  explicit RandomPositions(const Program& program);

  void begin();              // before the first task of a replay
  void before(TaskId task);  // around each task
  void after(TaskId task);
  void end();  // behind the last

 private:
  // A position that somebody comes back to, with the generator's state there.
  struct Kept {
    at::Generator generator;
    at::Tensor state = {};
  };
  using Key = std::pair<const c10::GeneratorImpl*, std::size_t>;

  std::map<Key, Kept> kept_;
  std::vector<Kept*> keep_after_;  // by task, and null where there is nothing to do
  std::vector<Kept*> set_before_;
  std::vector<Kept*> set_at_end_;
};

}  // namespace nimble::cpu
