#pragma once

#include <optional>
#include <set>
#include <span>
#include <vector>

#include "nimble/torch/rewrites/uses.h"

namespace nimble {

using Members = std::set<TaskId>;  // in an order in which they can run

// Where the work of each task of a program is done, once one of them does that of several. Of one program,
// which must outlive this, as its uses must.
class Placement {
 public:
  Placement(const Program& program, const Uses& uses);

  // The last of `members` in whose place one task can do the work of all, reading `inputs` and writing
  // `results`; none where there is no such place.
  std::optional<TaskId> find(const Members& members, std::span<const TensorRef> inputs,
                             std::span<const TensorRef> results) const;

  // From now on their work is done there.
  void move(const Members& members, TaskId at);

 private:
  bool is_in_time(const TensorRef& result, const Members& members, TaskId at) const;
  bool is_the_same(const TensorRef& input, const Members& members, TaskId at) const;

  const Uses& uses_;
  std::vector<TaskId> place_;  // by task
};

// Whether somebody else than the members looks at what one of them made, or changes it.
bool is_seen_outside(const Uses& uses, const TensorRef& result, const Members& members);

}  // namespace nimble
