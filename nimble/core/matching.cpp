#include "nimble/core/matching.h"

#include <cstdint>
#include <limits>

namespace nimble {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Hopcroft–Karp on the bipartite graph with each task once on the left, as the start of an edge, and once on
// the right, as its end. A phase finds the length of the shortest augmenting paths and then as many of them
// as fit side by side; there are O(sqrt(tasks)) phases.
class HopcroftKarp {
 public:
  explicit HopcroftKarp(const TaskGraph& graph)
      : graph_(graph), next_(graph.task_count(), kNone), previous_(graph.task_count(), kNone) {
    match_greedily();
    while (measure_distances()) augment_along_shortest_paths();
  }

  Matching result() const {
    Matching matching{std::vector<std::optional<TaskId>>(next_.size()),
                      std::vector<std::optional<TaskId>>(next_.size()), 0};
    for (std::uint32_t u = 0; u < next_.size(); ++u) {
      if (next_[u] == kNone) continue;
      matching.next[u] = TaskId{next_[u]};
      matching.previous[next_[u]] = TaskId{u};
      ++matching.size;
    }
    return matching;
  }

 private:
  // A good start saves phases: most tasks of a real graph have a free successor.
  void match_greedily() {
    for (std::uint32_t u = 0; u < next_.size(); ++u)
      for (TaskId v : graph_.successors(TaskId{u}))
        if (previous_[v.index()] == kNone) {
          next_[u] = v.value;
          previous_[v.index()] = u;
          break;
        }
  }

  // Breadth first from the unmatched tasks on the left, alternating free and matched edges. False if no
  // unmatched task on the right can be reached: then the matching is maximum.
  bool measure_distances() {
    distance_.assign(next_.size(), kNone);
    queue_.clear();
    for (std::uint32_t u = 0; u < next_.size(); ++u)
      if (next_[u] == kNone) {
        distance_[u] = 0;
        queue_.push_back(u);
      }
    shortest_ = kNone;
    for (std::size_t head = 0; head < queue_.size(); ++head) {
      const std::uint32_t u = queue_[head];
      if (distance_[u] >= shortest_) break;
      for (TaskId v : graph_.successors(TaskId{u})) {
        const std::uint32_t owner = previous_[v.index()];
        if (owner == kNone) {
          shortest_ = distance_[u];
        } else if (distance_[owner] == kNone) {
          distance_[owner] = distance_[u] + 1;
          queue_.push_back(owner);
        }
      }
    }
    return shortest_ != kNone;
  }

  void augment_along_shortest_paths() {
    edge_.assign(next_.size(), 0);
    for (std::uint32_t u = 0; u < next_.size(); ++u)
      if (next_[u] == kNone) augment_from(u);
  }

  // Depth first along growing distances, with a stack of our own: paths can be as long as the graph. `edge_`
  // keeps which edges of a task were tried, so a phase looks at every edge once.
  void augment_from(std::uint32_t root) {
    path_.assign(1, root);
    while (!path_.empty()) {
      const std::uint32_t u = path_.back();
      const auto successors = graph_.successors(TaskId{u});
      if (edge_[u] == successors.size()) {
        path_.pop_back();
        if (!path_.empty()) ++edge_[path_.back()];
        continue;
      }
      const std::uint32_t owner = previous_[successors[edge_[u]].index()];
      if (owner == kNone && distance_[u] == shortest_) {
        for (std::uint32_t task : path_) {
          const std::uint32_t v = graph_.successors(TaskId{task})[edge_[task]].value;
          next_[task] = v;
          previous_[v] = task;
          edge_[task] = static_cast<std::uint32_t>(graph_.successors(TaskId{task}).size());
        }
        return;
      }
      if (owner != kNone && distance_[owner] == distance_[u] + 1 && distance_[owner] <= shortest_)
        path_.push_back(owner);
      else
        ++edge_[u];
    }
  }

  const TaskGraph& graph_;
  std::vector<std::uint32_t> next_, previous_;   // the matching so far
  std::vector<std::uint32_t> distance_, queue_;  // by task on the left
  std::vector<std::uint32_t> edge_, path_;
  std::uint32_t shortest_ = kNone;
};

}  // namespace

Matching maximum_matching(const TaskGraph& graph) { return HopcroftKarp(graph).result(); }

}  // namespace nimble
