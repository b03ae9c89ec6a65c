#include "nimble/core/stream_assignment.h"

#include "nimble/core/matching.h"

namespace nimble {
namespace {

StreamAssignment launched_in_topological_order(const TaskGraph& graph) {
  const auto order = graph.topological_order();
  return {std::vector<StreamId>(graph.task_count()), 0, {order.begin(), order.end()}};
}

}  // namespace

StreamAssignment single_stream(const TaskGraph& graph) {
  StreamAssignment streams = launched_in_topological_order(graph);
  streams.stream_count = graph.task_count() == 0 ? 0 : 1;
  return streams;
}

StreamAssignment maximum_concurrency(const TaskGraph& reduced) {
  const Matching matching = maximum_matching(reduced);
  StreamAssignment streams = launched_in_topological_order(reduced);
  for (TaskId task : streams.launch_order) {
    const auto previous = matching.previous[task.index()];
    streams.stream_of[task.index()] = previous ? streams.stream_of[previous->index()]
                                               : StreamId{static_cast<std::uint32_t>(streams.stream_count++)};
  }
  return streams;
}

}  // namespace nimble
