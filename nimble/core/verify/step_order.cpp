#include "nimble/core/verify/step_order.h"

#include <optional>
#include <unordered_map>
#include <utility>

namespace nimble::verification {
namespace {

// Follows a walk and keeps, for each stream, the nodes that the stream's next task has to come after.
class OrderBuilder {
 public:
  OrderBuilder(std::size_t task_count, std::size_t stream_count) : frontier_(stream_count) {
    order_.node_of.assign(task_count, kNoNode);
  }

  void visit(StreamId stream, const Step& step) {
    std::vector<Node>& frontier = frontier_[stream.index()];
    if (const Run* run = std::get_if<Run>(&step)) {
      if (run->task.index() >= order_.node_of.size() || order_.node_of[run->task.index()] != kNoNode) return;
      order_.node_of[run->task.index()] = add_node(stream, run->task);
    } else if (const RecordEvent* record = std::get_if<RecordEvent>(&step)) {
      if (frontier.size() > 1) add_node(stream, std::nullopt);
      recorded_at_.try_emplace(record->event, frontier.empty() ? kNoNode : frontier.front());
    } else {
      Node recorded = recorded_at_.at(std::get<WaitEvent>(step).event);
      if (recorded != kNoNode) frontier.push_back(recorded);
    }
  }

  StepOrder finish(std::vector<StuckStream> stuck) && {
    order_.stuck = std::move(stuck);
    return std::move(order_);
  }

 private:
  Node add_node(StreamId stream, std::optional<TaskId> task) {
    Node node = static_cast<Node>(order_.node_count());
    std::vector<Node>& frontier = frontier_[stream.index()];
    order_.task.push_back(task);
    order_.stream.push_back(stream);
    order_.before.insert(order_.before.end(), frontier.begin(), frontier.end());
    order_.before_begin.push_back(order_.before.size());
    frontier.assign(1, node);
    return node;
  }

  StepOrder order_;
  std::vector<std::vector<Node>> frontier_;        // by stream
  std::unordered_map<EventId, Node> recorded_at_;  // kNoNode: recorded before any task ran on its stream
};

}  // namespace

StepOrder step_order(std::size_t task_count, const Schedule& schedule) {
  OrderBuilder builder(task_count, schedule.streams.size());
  auto stuck = walk_steps(schedule, [&](StreamId stream, const Step& step) { builder.visit(stream, step); });
  return std::move(builder).finish(std::move(stuck));
}

}  // namespace nimble::verification
