#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "nimble/core/memory_plan.h"
#include "nimble/core/stream_assignment.h"
#include "nimble/core/sync_plan.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// What a stream does, step by step.
struct Run {
  TaskId task;
  friend bool operator==(const Run&, const Run&) = default;
};
struct RecordEvent {
  EventId event;
  friend bool operator==(const RecordEvent&, const RecordEvent&) = default;
};
struct WaitEvent {
  EventId event;
  friend bool operator==(const WaitEvent&, const WaitEvent&) = default;
};
using Step = std::variant<Run, RecordEvent, WaitEvent>;
using StreamProgram = std::vector<Step>;

// When and where every task runs and where every buffer lies. A plain value: build one with `make_schedule`,
// read one from JSON, compare two with ==. Nothing about it is trusted until `verify` has accepted it.
struct Schedule {
  std::vector<StreamProgram> streams;
  std::vector<TaskId> launch_order;  // in which order the host issues the tasks
  std::size_t event_count = 0;       // one event for each task that another stream waits for
  MemoryPlan memory;

  // Both walk over all steps. stream_of needs a schedule that runs every task of the launch order once.
  std::size_t wait_count() const;
  std::vector<StreamId> stream_of() const;  // by task
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Streams, events and waits for a given assignment, without memory: plan_syncs turned into programs.
// `streams` must be an assignment of this graph. Costs what plan_syncs costs.
Schedule make_schedule(const TaskGraph& graph, const StreamAssignment& streams);

// The schedule's own order as a graph with the tasks of `graph`: an edge for two neighbours on a stream and
// for each wait. Its reachability is the happens-before relation that memory planning needs. The schedule
// must have been made for this graph, here or elsewhere, and verify. O(steps).
TaskGraph happens_before_graph(const TaskGraph& graph, const Schedule& schedule);

// How many streams a schedule may use.
struct StreamLimit {
  std::size_t count = 0;  // 0: as many as maximum logical concurrency takes
  static StreamLimit maximum() { return {}; }
  static StreamLimit at_most(std::size_t n);  // throws InvalidInput for 0
};

// The whole way from a task graph to a schedule with memory: minimum equivalent graph, streams, syncs,
// offsets; on a limited number of streams also waits for memory's sake (memory_waits.h). The same input gives
// the same schedule, always and everywhere. Milliseconds for 2,000 tasks, a second for 100,000
// (docs/planner.md); looking for waits may take as long again. Throws InvalidInput for buffers that
// plan_memory refuses.
Schedule plan(const TaskGraph& graph, std::span<const BufferSpec> buffers, StreamLimit limit = {});

}  // namespace nimble
