#pragma once

#include "nimble/core/schedule.h"

// Short names for the steps of a schedule. (Inside a test, `Run` is a member of GoogleTest's own.)
namespace nimble::testing {

inline Step run(TaskId task) { return Run{task}; }
inline Step record(EventId event) { return RecordEvent{event}; }
inline Step wait(EventId event) { return WaitEvent{event}; }

}  // namespace nimble::testing
