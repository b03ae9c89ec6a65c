#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nimble/core/ids.h"

namespace nimble {

using Nanoseconds = std::int64_t;

// A directed acyclic graph of named tasks: plain numbers, no tensors. Immutable once built, so any number of
// threads may read one. Stored as compressed sparse rows; neighbours of a task are sorted by id.
class TaskGraph {
 public:
  TaskGraph() = default;  // the empty graph

  std::size_t task_count() const { return names_.size(); }
  std::size_t edge_count() const { return successors_.size(); }

  const std::string& name(TaskId task) const { return names_[task.index()]; }
  std::optional<Nanoseconds> cost(TaskId task) const;

  std::span<const TaskId> successors(TaskId task) const;
  std::span<const TaskId> predecessors(TaskId task) const;

  // Every task after all of its predecessors; among ready tasks the smallest id first. A recorded program's ids
  // are already topological, and then this is the recorded order.
  std::span<const TaskId> topological_order() const { return order_; }

  friend bool operator==(const TaskGraph&, const TaskGraph&) = default;

 private:
  friend class TaskGraphBuilder;
  std::vector<std::string> names_;
  std::vector<Nanoseconds> costs_;  // negative where unknown
  std::vector<std::uint32_t> successor_begin_, predecessor_begin_;
  std::vector<TaskId> successors_, predecessors_, order_;
};

// Collects tasks and edges, then checks them all at once.
class TaskGraphBuilder {
 public:
  // Throws InvalidInput if the cost is negative or the name is already taken.
  TaskId add_task(std::string name, std::optional<Nanoseconds> cost = std::nullopt);

  // `after` may start only once `before` has finished. Adding an edge twice is the same as adding it once.
  // Throws InvalidInput if either task is unknown or both are the same.
  void add_edge(TaskId before, TaskId after);

  // O(tasks + edges log edges). Throws InvalidInput, naming the tasks of one cycle, if there is a cycle.
  TaskGraph build() &&;
};

}  // namespace nimble
