#include "nimble/core/sync_plan.h"

#include <algorithm>
#include <optional>
#include <string>

#include "nimble/core/error.h"
#include "nimble/core/minimum_equivalent_graph.h"

namespace nimble {

std::vector<Wait> plan_syncs(const TaskGraph& graph, const StreamAssignment& streams) {
  if (streams.stream_of.size() != graph.task_count() || streams.launch_order.size() != graph.task_count())
    throw InvalidInput("[nimble::plan_syncs] an assignment of " + std::to_string(streams.stream_of.size()) +
                       " tasks for a graph of " + std::to_string(graph.task_count()));
  std::vector<Edge> order;
  order.reserve(graph.edge_count() + graph.task_count());
  std::vector<std::optional<TaskId>> last_on(streams.stream_count);
  for (TaskId task : streams.launch_order) {
    for (TaskId next : graph.successors(task)) order.push_back({task, next});
    auto& last = last_on[streams.stream_of[task.index()].index()];
    if (last) order.push_back({*last, task});
    last = task;
  }
  const TaskGraph reduced = minimum_equivalent_graph(graph.with_edges(order));

  std::vector<Wait> waits;
  const auto position = positions_in(streams.launch_order);
  for (TaskId after : streams.launch_order) {
    const std::size_t first = waits.size();
    for (TaskId before : reduced.predecessors(after)) {
      if (position[before.index()] > position[after.index()])
        throw InvalidInput("[nimble::plan_syncs] task \"" + graph.name(after) + "\" is launched before \"" +
                           graph.name(before) + "\", on which it depends");
      if (streams.stream_of[before.index()] != streams.stream_of[after.index()])
        waits.push_back({before, after});
    }
    std::sort(waits.begin() + static_cast<std::ptrdiff_t>(first), waits.end(),
              [&](const Wait& a, const Wait& b) {
                return position[a.before.index()] < position[b.before.index()];
              });
  }
  return waits;
}

}  // namespace nimble
