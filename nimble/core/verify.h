#pragma once

#include <span>
#include <string>
#include <vector>

#include "nimble/core/schedule.h"

namespace nimble {

struct Violation {
  enum class Kind {
    kTaskMissing, kTaskRepeated, kUnknownTask, kUnknownEvent, kEventRecordedTwice, kDeadlock, kMissingOrder,
    kOverlap, kOutsideArena, kMisaligned, kLaunchOrder, kWrongShape,
  };
  Kind kind;
  std::string message;  // one line, with the names of the tasks and buffers concerned
};

// Checks a schedule against the graph and buffers it claims to be for, and returns everything wrong with it; empty
// means that running it gives the same result as running the tasks one by one. Shares no code with the planner.
std::vector<Violation> verify(const TaskGraph& graph, std::span<const BufferSpec> buffers, const Schedule& schedule);

// Throws nimble::Error with the first violations if there are any.
void verify_or_throw(const TaskGraph& graph, std::span<const BufferSpec> buffers, const Schedule& schedule);

}  // namespace nimble
