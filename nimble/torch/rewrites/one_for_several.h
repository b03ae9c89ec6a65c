#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/placement.h"

namespace nimble {

// A call that does the work of several tasks, in the place of one of them.
struct OneForSeveral {
  Members members;
  TaskId at;
  c10::OperatorHandle op;
  std::vector<std::vector<Operand>> ways;  // its arguments: it may know more than one way to do it
  std::vector<Operand> results;
};

// Puts it there, in the fastest of its ways, unless the tasks are faster as they are. The names of those, if
// so.
std::optional<std::string> replace_if_faster(OneForSeveral one, const Program& program,
                                             std::span<const Buffer> buffers, Edit& edit, Chooser& chooser);

}  // namespace nimble
