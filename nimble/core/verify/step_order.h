#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "nimble/core/schedule.h"
#include "nimble/core/step_walk.h"

namespace nimble::verification {

// A point in a schedule's execution, numbered in an order in which the points could run: a task, or a join,
// which stands for an event that is recorded after several waits with no task in between.
using Node = std::uint32_t;
inline constexpr Node kNoNode = std::numeric_limits<Node>::max();

// What a schedule's streams and events order directly; everything else follows from it.
struct StepOrder {
  std::vector<Node> node_of;  // by task; kNoNode if it never runs, its first run if it runs twice
  std::vector<std::optional<TaskId>> task;  // by node; nothing for a join
  std::vector<StreamId> stream;             // by node
  std::vector<StuckStream> stuck;  // streams that wait for ever; then the nodes behind them are missing

  std::size_t node_count() const { return task.size(); }
  std::span<const Node> directly_before(Node node) const {
    return std::span(before).subspan(before_begin[node], before_begin[node + 1] - before_begin[node]);
  }

  std::vector<std::size_t> before_begin{0};
  std::vector<Node> before;
};

StepOrder step_order(std::size_t task_count, const Schedule& schedule);

}  // namespace nimble::verification
