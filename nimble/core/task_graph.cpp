#include "nimble/core/task_graph.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "nimble/core/error.h"

namespace nimble {
namespace {

constexpr std::size_t kMostIds = std::numeric_limits<std::uint32_t>::max();

// One side of the adjacency: the neighbours of task t are at [begin[t], begin[t + 1]).
struct Rows {
  std::vector<std::uint32_t> begin;
  std::vector<TaskId> neighbours;
};

// Groups edges by the task that `key` picks, keeping their order inside each group: one pass of a radix sort.
template <class Key, class Value>
Rows group_edges(std::size_t tasks, std::span<const Edge> edges, Key key, Value value) {
  Rows rows{std::vector<std::uint32_t>(tasks + 1), std::vector<TaskId>(edges.size())};
  for (const Edge& edge : edges) ++rows.begin[key(edge).index() + 1];
  for (std::size_t t = 0; t < tasks; ++t) rows.begin[t + 1] += rows.begin[t];
  std::vector<std::uint32_t> next(rows.begin.begin(), rows.begin.end() - 1);
  for (const Edge& edge : edges) rows.neighbours[next[key(edge).index()]++] = value(edge);
  return rows;
}

std::vector<Edge> sorted_without_repeats(std::size_t tasks, std::span<const Edge> edges) {
  const auto before = [](const Edge& edge) { return edge.before; };
  const auto after = [](const Edge& edge) { return edge.after; };
  std::vector<Edge> sorted(edges.begin(), edges.end());
  if (!std::is_sorted(sorted.begin(), sorted.end())) {
    const auto regroup = [&](auto key, auto value, auto make) {
      const Rows rows = group_edges(tasks, sorted, key, value);
      for (std::size_t t = 0, i = 0; t < tasks; ++t)
        for (; i < rows.begin[t + 1]; ++i)
          sorted[i] = make(TaskId{static_cast<std::uint32_t>(t)}, rows.neighbours[i]);
    };
    regroup(after, before, [](TaskId a, TaskId b) { return Edge{b, a}; });
    regroup(before, after, [](TaskId b, TaskId a) { return Edge{b, a}; });
  }
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

// Called when every task in `stuck` still has a predecessor in `stuck`: going back from any of them must
// repeat.
std::string name_a_cycle(const TaskGraph& graph, const std::vector<std::uint32_t>& waiting_for) {
  const auto stuck = [&](TaskId task) { return waiting_for[task.index()] > 0; };
  TaskId task{0};
  while (!stuck(task)) ++task.value;
  std::vector<bool> seen(graph.task_count());
  std::vector<TaskId> path;
  while (!seen[task.index()]) {
    seen[task.index()] = true;
    path.push_back(task);
    const auto before = graph.predecessors(task);
    task = *std::find_if(before.begin(), before.end(), stuck);
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), task));
  std::reverse(path.begin(), path.end());  // we walked against the edges
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());

  constexpr std::size_t kNamesShown = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(path.size(), kNamesShown); ++i) text += graph.name(path[i]) + " -> ";
  if (path.size() > kNamesShown) text += "... (" + std::to_string(path.size()) + " tasks) -> ";
  return text + graph.name(path.front());
}

}  // namespace

std::optional<Nanoseconds> TaskGraph::cost(TaskId task) const {
  const Nanoseconds cost = tasks_->costs[task.index()];
  return cost < 0 ? std::nullopt : std::optional(cost);
}

TaskGraph::TaskGraph(std::shared_ptr<const Tasks> tasks, std::span<const Edge> edges)
    : tasks_(std::move(tasks)) {
  const std::size_t n = tasks_->names.size();
  for (const Edge& edge : edges) {
    if (edge.before.index() >= n || edge.after.index() >= n)
      throw InvalidInput("[nimble::TaskGraph] edge " + std::to_string(edge.before.value) + " -> " +
                         std::to_string(edge.after.value) + ": there are only " + std::to_string(n) +
                         " tasks");
    if (edge.before == edge.after)
      throw InvalidInput("[nimble::TaskGraph] edge " + std::to_string(edge.before.value) + " -> " +
                         std::to_string(edge.after.value) + ": task \"" + tasks_->names[edge.before.index()] +
                         "\" cannot wait for itself");
  }
  const std::vector<Edge> sorted = sorted_without_repeats(n, edges);
  if (sorted.size() > kMostIds)
    throw InvalidInput("[nimble::TaskGraph] " + std::to_string(sorted.size()) + " edges are too many");
  Rows after = group_edges(
      n, sorted, [](const Edge& e) { return e.before; }, [](const Edge& e) { return e.after; });
  Rows before = group_edges(
      n, sorted, [](const Edge& e) { return e.after; }, [](const Edge& e) { return e.before; });
  successor_begin_ = std::move(after.begin);
  successors_ = std::move(after.neighbours);
  predecessor_begin_ = std::move(before.begin);
  predecessors_ = std::move(before.neighbours);

  order_.resize(n);
  const bool ids_are_topological =
      std::all_of(sorted.begin(), sorted.end(), [](const Edge& edge) { return edge.before < edge.after; });
  if (ids_are_topological) {
    for (std::uint32_t t = 0; t < n; ++t) order_[t] = TaskId{t};
    return;
  }
  std::vector<std::uint32_t> waiting_for(n);
  std::priority_queue<TaskId, std::vector<TaskId>, std::greater<>> ready;
  for (std::uint32_t t = 0; t < n; ++t) {
    waiting_for[t] = static_cast<std::uint32_t>(predecessors(TaskId{t}).size());
    if (waiting_for[t] == 0) ready.push(TaskId{t});
  }
  std::size_t ordered = 0;
  while (!ready.empty()) {
    const TaskId task = ready.top();
    ready.pop();
    order_[ordered++] = task;
    for (TaskId next : successors(task))
      if (--waiting_for[next.index()] == 0) ready.push(next);
  }
  if (ordered < n)
    throw InvalidInput("[nimble::TaskGraph] the edges form a cycle: " + name_a_cycle(*this, waiting_for));
}

TaskGraph TaskGraph::with_edges(std::span<const Edge> edges) const {
  if (!tasks_) return TaskGraph(std::make_shared<const Tasks>(), edges);
  return TaskGraph(tasks_, edges);
}

bool operator==(const TaskGraph& a, const TaskGraph& b) {
  if (a.task_count() != b.task_count()) return false;
  if (a.task_count() == 0) return true;
  // The predecessors and the order follow from the successors.
  return a.successor_begin_ == b.successor_begin_ && a.successors_ == b.successors_ &&
         (a.tasks_ == b.tasks_ || *a.tasks_ == *b.tasks_);
}

TaskId TaskGraphBuilder::add_task(std::string name, std::optional<Nanoseconds> cost) {
  if (cost && *cost < 0)
    throw InvalidInput("[nimble::TaskGraphBuilder] task \"" + name + "\": a cost of " +
                       std::to_string(*cost) + " ns is negative");
  if (tasks_.names.size() >= kMostIds) throw InvalidInput("[nimble::TaskGraphBuilder] too many tasks");
  if (!taken_names_.insert(name).second)
    throw InvalidInput("[nimble::TaskGraphBuilder] the name \"" + name + "\" is already taken");
  const TaskId id{static_cast<std::uint32_t>(tasks_.names.size())};
  tasks_.names.push_back(std::move(name));
  tasks_.costs.push_back(cost.value_or(-1));
  return id;
}

void TaskGraphBuilder::add_edge(TaskId before, TaskId after) {
  const auto text = [&] {
    return "[nimble::TaskGraphBuilder] edge " + std::to_string(before.value) + " -> " +
           std::to_string(after.value);
  };
  const std::size_t n = tasks_.names.size();
  if (before.index() >= n || after.index() >= n)
    throw InvalidInput(text() + ": there are only " + std::to_string(n) + " tasks; add both before the edge");
  if (before == after)
    throw InvalidInput(text() + ": task \"" + tasks_.names[before.index()] + "\" cannot wait for itself");
  edges_.push_back({before, after});
}

TaskGraph TaskGraphBuilder::build() && {
  taken_names_.clear();
  const std::vector<Edge> edges = std::move(edges_);
  return TaskGraph(std::make_shared<const TaskGraph::Tasks>(std::move(tasks_)), edges);
}

std::vector<std::uint32_t> positions_in(std::span<const TaskId> order) {
  std::vector<std::uint32_t> positions(order.size());
  for (std::uint32_t p = 0; p < order.size(); ++p) positions[order[p].index()] = p;
  return positions;
}

}  // namespace nimble
