#pragma once

#include <span>
#include <string>
#include <vector>

#include "nimble/core/schedule.h"

namespace nimble {

struct Violation {
  enum class Kind {
    kTaskMissing,         // a task that no stream runs, or that is never launched
    kTaskRepeated,        // a task that runs or is launched twice
    kUnknownTask,         // an id that the graph does not have
    kUnknownEvent,        // an id that is not below event_count
    kEventRecordedTwice,  // nobody could say which of the two a wait means
    kDeadlock,            // a stream waits for ever
    kMissingOrder,        // an edge of the graph that streams and waits do not enforce
    kLaunchOrder,         // launched before something it waits for or comes after
    kOverlap,             // two buffers share bytes and may be in use together
    kOutsideArena,        // a buffer that reaches beyond the end of the arena
    kMisaligned,          // a buffer whose offset is no multiple of its alignment
    kWrongShape,          // not one offset for each buffer
  };
  Kind kind;
  std::string message;  // one line, with the names of the tasks and buffers concerned
};

// Checks a schedule against the graph and buffers it claims to be for, and returns everything wrong with it;
// empty means that running it gives the same result as running the tasks one by one. Trusts nothing about the
// schedule and shares no code with the planner. Where a stream waits for ever, order and overlaps have no
// meaning and are not looked at.
//
// Cheap enough for every preparation: a few milliseconds for 2,000 tasks; at worst tasks² / 64 bit operations
// and memory linear in the schedule, however many streams it has.
std::vector<Violation> verify(const TaskGraph& graph, std::span<const BufferSpec> buffers,
                              const Schedule& schedule);

// Throws nimble::Error with the first violations if there are any.
void verify_or_throw(const TaskGraph& graph, std::span<const BufferSpec> buffers, const Schedule& schedule);

}  // namespace nimble
