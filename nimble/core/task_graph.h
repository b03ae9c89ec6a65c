#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "nimble/core/ids.h"

namespace nimble {

using Nanoseconds = std::int64_t;

// `after` may start only once `before` has finished.
struct Edge {
  TaskId before;
  TaskId after;
  friend auto operator<=>(const Edge&, const Edge&) = default;
};

// A directed acyclic graph of named tasks: plain numbers, no tensors. Stored as compressed sparse rows.
//
// A value: copies are independent and share the names and costs, which never change. Immutable once built, so
// any number of threads may read one. Every TaskId passed in must be smaller than task_count(); spans and
// references handed out live as long as the graph they came from.
class TaskGraph {
 public:
  TaskGraph() = default;  // the empty graph

  std::size_t task_count() const { return order_.size(); }
  std::size_t edge_count() const { return successors_.size(); }

  const std::string& name(TaskId task) const { return tasks_->names[task.index()]; }
  std::optional<Nanoseconds> cost(TaskId task) const;

  // Sorted by id, without repeats.
  std::span<const TaskId> successors(TaskId task) const {
    return {successors_.data() + successor_begin_[task.index()],
            successors_.data() + successor_begin_[task.index() + 1]};
  }
  std::span<const TaskId> predecessors(TaskId task) const {
    return {predecessors_.data() + predecessor_begin_[task.index()],
            predecessors_.data() + predecessor_begin_[task.index() + 1]};
  }

  // Every task after all of its predecessors; among ready tasks the smallest id first. A recorded program's
  // ids are already topological, and then this is the recorded order.
  std::span<const TaskId> topological_order() const { return order_; }

  // The same tasks with other edges, in any order; repeats count once. O(tasks + edges), and a heap on top
  // where the ids are not topological. Throws InvalidInput for an unknown task, a self-edge or a cycle.
  TaskGraph with_edges(std::span<const Edge> edges) const;

  // Equal if names, costs and edges are.
  friend bool operator==(const TaskGraph& a, const TaskGraph& b);

 private:
  friend class TaskGraphBuilder;

  struct Tasks {
    std::vector<std::string> names;
    std::vector<Nanoseconds> costs;  // negative where unknown
    friend bool operator==(const Tasks&, const Tasks&) = default;
  };

  TaskGraph(std::shared_ptr<const Tasks> tasks, std::span<const Edge> edges);

  std::shared_ptr<const Tasks> tasks_;  // null in the empty graph
  std::vector<std::uint32_t> successor_begin_, predecessor_begin_;
  std::vector<TaskId> successors_, predecessors_, order_;
};

// Collects tasks and edges, then checks them all at once. For one thread at a time; build() uses it up.
class TaskGraphBuilder {
 public:
  // The new task's id: ids count up from 0. Throws InvalidInput if the cost is negative or the name is taken.
  TaskId add_task(std::string name, std::optional<Nanoseconds> cost = std::nullopt);

  // `after` may start only once `before` has finished. Adding an edge twice is the same as adding it once.
  // Throws InvalidInput if either task is unknown or both are the same.
  void add_edge(TaskId before, TaskId after);

  // O(tasks + edges), and a heap on top where the ids are not topological. Throws InvalidInput, naming the
  // tasks of one cycle, if there is a cycle.
  TaskGraph build() &&;

 private:
  TaskGraph::Tasks tasks_;
  std::unordered_set<std::string> taken_names_;
  std::vector<Edge> edges_;
};

// The inverse of a permutation of all tasks: where in `order` each task stands, by task.
std::vector<std::uint32_t> positions_in(std::span<const TaskId> order);

}  // namespace nimble
