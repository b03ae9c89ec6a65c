#include "nimble/core/degree_of_concurrency.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "nimble/core/chain_cover.h"

namespace nimble {
namespace {

constexpr std::uint32_t kUnreached = std::numeric_limits<std::uint32_t>::max();

// Walkers go along edges such that every task is visited. A cover by the fewest walkers is a minimum flow in
// which every task carries at least 1: we start from a greedy cover and join the end of one walk to the start
// of another, along shortest paths of the residual graph (Dinic), until no more can be joined.
//
// The residual graph has an entry and an exit for each task. Steps forward (exit to a successor's entry,
// entry to exit) are always possible and add a walker; steps back take one away, so they need one on that
// edge, or two on that task.
class WalkerCover {
 public:
  explicit WalkerCover(const TaskGraph& graph)
      : graph_(graph),
        on_task_(graph.task_count()),
        starting_(graph.task_count()),
        ending_(graph.task_count()),
        first_edge_(graph.task_count() + 1),
        edge_into_(graph.edge_count()),
        on_edge_(graph.edge_count()) {
    index_edges();
    cover_greedily();
    while (measure_distances()) join_along_shortest_paths();
  }

  // Every walk enters the part that walk ends can reach inside exactly one task, and these tasks are
  // unordered.
  std::vector<TaskId> unordered_tasks() const {
    std::vector<TaskId> tasks;
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t)
      if (distance_[exit_of(t)] != kUnreached && distance_[entry_of(t)] == kUnreached)
        tasks.push_back(TaskId{t});
    return tasks;
  }

 private:
  static std::size_t entry_of(std::size_t task) { return 2 * task; }
  static std::size_t exit_of(std::size_t task) { return 2 * task + 1; }

  // Edges are numbered by start, then end. `edge_into_` finds the number of a task's k-th edge in.
  void index_edges() {
    std::vector<std::uint32_t> begin_in(graph_.task_count() + 1);
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t) {
      first_edge_[t + 1] = first_edge_[t] + static_cast<std::uint32_t>(graph_.successors(TaskId{t}).size());
      begin_in[t + 1] = begin_in[t] + static_cast<std::uint32_t>(graph_.predecessors(TaskId{t}).size());
    }
    first_edge_in_ = begin_in;
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t)
      for (std::uint32_t k = 0; k < graph_.successors(TaskId{t}).size(); ++k)
        edge_into_[begin_in[graph_.successors(TaskId{t})[k].index()]++] = first_edge_[t] + k;
  }

  void cover_greedily() {
    const ChainCover cover = greedy_chain_cover(graph_);
    on_edge_ = cover.passing;
    for (const auto& chain : cover.chains) ++starting_[chain.front().index()];
    for (TaskId task : graph_.topological_order()) {
      const std::size_t t = task.index();
      on_task_[t] = starting_[t];
      for (std::uint32_t e = first_edge_in_[t]; e < first_edge_in_[t + 1]; ++e)
        on_task_[t] += on_edge_[edge_into_[e]];
      ending_[t] = on_task_[t];
      for (std::uint32_t e = first_edge_[t]; e < first_edge_[t + 1]; ++e) ending_[t] -= on_edge_[e];
    }
  }

  struct Step {
    std::uint32_t to;     // an entry or an exit
    std::uint32_t* less;  // what a step back takes from; null for a step forward
    std::uint32_t* more;  // what a step forward adds to
  };

  // The `k`-th step out of `node`, if it is possible now; `done` is set behind the last.
  std::optional<Step> step(std::uint32_t node, std::uint32_t k, bool& done) {
    const std::uint32_t t = node / 2;
    const bool at_exit = node % 2 == 1;
    if (k == 0) {
      if (!at_exit) return Step{node + 1, nullptr, &on_task_[t]};
      if (on_task_[t] >= 2) return Step{node - 1, &on_task_[t], nullptr};
      return std::nullopt;
    }
    const auto others = at_exit ? graph_.successors(TaskId{t}) : graph_.predecessors(TaskId{t});
    if (k > others.size()) {
      done = true;
      return std::nullopt;
    }
    const auto other = static_cast<std::uint32_t>(others[k - 1].index());
    if (at_exit)
      return Step{static_cast<std::uint32_t>(entry_of(other)), nullptr, &on_edge_[first_edge_[t] + k - 1]};
    std::uint32_t& walkers = on_edge_[edge_into_[first_edge_in_[t] + k - 1]];
    if (walkers == 0) return std::nullopt;
    return Step{static_cast<std::uint32_t>(exit_of(other)), &walkers, nullptr};
  }

  // Breadth first from where walks end. False if no start of a walk can be reached.
  bool measure_distances() {
    distance_.assign(2 * graph_.task_count(), kUnreached);
    queue_.clear();
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t)
      if (ending_[t] > 0) {
        distance_[exit_of(t)] = 0;
        queue_.push_back(static_cast<std::uint32_t>(exit_of(t)));
      }
    nearest_ = kUnreached;
    for (std::size_t head = 0; head < queue_.size(); ++head) {
      const std::uint32_t node = queue_[head];
      if (distance_[node] >= nearest_) break;
      if (node % 2 == 0 && starting_[node / 2] > 0) {
        nearest_ = distance_[node];
        break;
      }
      bool done = false;
      for (std::uint32_t k = 0; !done; ++k)
        if (const auto next = step(node, k, done); next && distance_[next->to] == kUnreached) {
          distance_[next->to] = distance_[node] + 1;
          queue_.push_back(next->to);
        }
    }
    return nearest_ != kUnreached;
  }

  void join_along_shortest_paths() {
    tried_.assign(2 * graph_.task_count(), 0);
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t)
      while (ending_[t] > 0 && join_from(t)) {
      }
  }

  // Depth first along growing distances. `tried_` keeps which steps lead nowhere, so that a phase tries each
  // once.
  bool join_from(std::uint32_t end) {
    path_.assign(1, static_cast<std::uint32_t>(exit_of(end)));
    while (!path_.empty()) {
      const std::uint32_t node = path_.back();
      if (node % 2 == 0 && starting_[node / 2] > 0 && distance_[node] == nearest_) {
        --starting_[node / 2];
        --ending_[end];
        for (std::size_t i = 0; i + 1 < path_.size(); ++i) {
          bool done = false;
          const auto taken = step(path_[i], tried_[path_[i]], done);
          if (taken->less) --*taken->less;
          if (taken->more) ++*taken->more;
        }
        return true;
      }
      bool done = false;
      const auto next = step(node, tried_[node], done);
      if (done || distance_[node] >= nearest_) {
        path_.pop_back();
        if (!path_.empty()) ++tried_[path_.back()];
      } else if (next && distance_[next->to] == distance_[node] + 1) {
        path_.push_back(next->to);
      } else {
        ++tried_[node];
      }
    }
    return false;
  }

  const TaskGraph& graph_;
  std::vector<std::uint32_t> on_task_, starting_, ending_;  // walkers, by task
  std::vector<std::uint32_t> first_edge_, first_edge_in_, edge_into_;
  std::vector<std::uint32_t> on_edge_;  // walkers, by edge
  std::vector<std::uint32_t> distance_, queue_, tried_, path_;
  std::uint32_t nearest_ = kUnreached;
};

}  // namespace

std::vector<TaskId> largest_antichain(const TaskGraph& graph) { return WalkerCover(graph).unordered_tasks(); }

std::size_t degree_of_concurrency(const TaskGraph& graph) { return largest_antichain(graph).size(); }

}  // namespace nimble
