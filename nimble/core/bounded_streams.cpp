#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <set>
#include <string>

#include "nimble/core/error.h"
#include "nimble/core/stream_assignment.h"

namespace nimble {
namespace {

constexpr Nanoseconds kUnknownCost = 1000;

// A sum of costs that stops at the largest value instead of overflowing.
Nanoseconds plus(Nanoseconds a, Nanoseconds b) {
  Nanoseconds sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<Nanoseconds>::max() : sum;
}

// The longest path, in time, from the start of each task to the end of the graph.
std::vector<Nanoseconds> remaining_paths(const TaskGraph& graph) {
  std::vector<Nanoseconds> remaining(graph.task_count());
  const auto order = graph.topological_order();
  for (std::size_t i = order.size(); i-- > 0;) {
    Nanoseconds longest = 0;
    for (TaskId next : graph.successors(order[i])) longest = std::max(longest, remaining[next.index()]);
    remaining[order[i].index()] = plus(graph.cost(order[i]).value_or(kUnknownCost), longest);
  }
  return remaining;
}

// Runs the tasks in virtual time and notes where each went.
class ListScheduler {
 public:
  ListScheduler(const TaskGraph& graph, std::size_t limit, Nanoseconds sync_cost)
      : graph_(graph),
        limit_(limit),
        sync_cost_(sync_cost),
        remaining_(remaining_paths(graph)),
        finish_(graph.task_count()) {
    result_.stream_of.resize(graph.task_count());
    result_.launch_order.reserve(graph.task_count());
  }

  StreamAssignment run() && {
    std::vector<std::uint32_t> waiting_for(graph_.task_count());
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t) {
      waiting_for[t] = static_cast<std::uint32_t>(graph_.predecessors(TaskId{t}).size());
      if (waiting_for[t] == 0) ready_.push({remaining_[t], TaskId{t}});
    }
    while (result_.launch_order.size() < graph_.task_count()) {
      const TaskId task = next_task();
      launch(task);
      for (TaskId next : graph_.successors(task))
        if (--waiting_for[next.index()] == 0) later_.push({ready_time(next), next});
    }
    result_.stream_count = free_at_.size();
    return std::move(result_);
  }

 private:
  struct Ready {
    Nanoseconds remaining;
    TaskId task;
    bool operator<(const Ready& other) const {  // the greatest goes first: longest path, then smallest id
      return remaining != other.remaining ? remaining < other.remaining : task > other.task;
    }
  };
  struct Later {
    Nanoseconds time;
    TaskId task;
    bool operator<(const Later& other) const {
      return time != other.time ? time > other.time : task > other.task;
    }
  };

  Nanoseconds ready_time(TaskId task) const {
    Nanoseconds time = 0;
    for (TaskId before : graph_.predecessors(task)) time = std::max(time, finish_[before.index()]);
    return time;
  }

  // The most urgent of the tasks that are ready by the time a stream is free; if there is none, whatever gets
  // ready first.
  TaskId next_task() {
    Nanoseconds now = free_at_.size() < limit_ ? 0 : by_free_time_.begin()->first;
    if (ready_.empty() && now < later_.top().time) now = later_.top().time;
    for (; !later_.empty() && later_.top().time <= now; later_.pop())
      ready_.push({remaining_[later_.top().task.index()], later_.top().task});
    const TaskId task = ready_.top().task;
    ready_.pop();
    return task;
  }

  // When what a task needs from others is there: everywhere but on one stream at `elsewhere`, on that one
  // already at `there`. (What it needs from its own stream is there as soon as the stream is free.)
  struct Arrival {
    Nanoseconds elsewhere = 0, there = 0;
    StreamId stream{~std::uint32_t{0}};

    Nanoseconds on(StreamId other) const { return other == stream ? there : elsewhere; }
  };

  Arrival arrival_of(TaskId task) const {
    Arrival arrival;
    for (TaskId before : graph_.predecessors(task)) {
      const StreamId stream = result_.stream_of[before.index()];
      const Nanoseconds time = plus(finish_[before.index()], sync_cost_);
      if (stream == arrival.stream) {
        arrival.elsewhere = std::max(arrival.elsewhere, time);
      } else if (time > arrival.elsewhere) {
        arrival = {time, arrival.elsewhere, stream};
      } else {
        arrival.there = std::max(arrival.there, time);
      }
    }
    return arrival;
  }

  // Where `task` starts first: on a predecessor's stream, which saves a sync, or on the stream that has been
  // idle for the shortest time when everything it needs is there; one that is idle for longer, or a new one,
  // is left for others.
  void launch(TaskId task) {
    const Arrival arrival = arrival_of(task);
    const auto start_on = [&](StreamId stream) {
      return std::max(free_at_[stream.index()], arrival.on(stream));
    };
    std::optional<StreamId> best;
    for (TaskId before : graph_.predecessors(task)) {
      const StreamId stream = result_.stream_of[before.index()];
      if (!best || std::pair(start_on(stream), stream) < std::pair(start_on(*best), *best)) best = stream;
    }
    if (!best || start_on(*best) > ready_time(task)) {
      const std::optional<StreamId> other = idle_stream(arrival.elsewhere);
      const Nanoseconds start = other ? start_on(*other) : arrival.elsewhere;
      if (!best || start < start_on(*best)) best = other ? *other : open_stream();
    }
    run_on(*best, task, start_on(*best));
  }

  // The stream that gets idle last of those that are by `time`; nothing if there is none but one may be
  // opened; else the one that gets idle first.
  std::optional<StreamId> idle_stream(Nanoseconds time) const {
    const auto later = by_free_time_.upper_bound({time, StreamId{~std::uint32_t{0}}});
    if (later != by_free_time_.begin()) return std::prev(later)->second;
    return free_at_.size() < limit_ ? std::nullopt : std::optional(later->second);
  }

  StreamId open_stream() {
    const StreamId stream{static_cast<std::uint32_t>(free_at_.size())};
    free_at_.push_back(0);
    by_free_time_.insert({0, stream});
    return stream;
  }

  void run_on(StreamId stream, TaskId task, Nanoseconds start) {
    by_free_time_.erase({free_at_[stream.index()], stream});
    finish_[task.index()] = plus(start, graph_.cost(task).value_or(kUnknownCost));
    free_at_[stream.index()] = finish_[task.index()];
    by_free_time_.insert({finish_[task.index()], stream});
    result_.stream_of[task.index()] = stream;
    result_.launch_order.push_back(task);
  }

  const TaskGraph& graph_;
  const std::size_t limit_;
  const Nanoseconds sync_cost_;
  const std::vector<Nanoseconds> remaining_;
  std::vector<Nanoseconds> finish_;
  std::priority_queue<Ready> ready_;
  std::priority_queue<Later> later_;
  std::vector<Nanoseconds> free_at_;  // by stream
  std::set<std::pair<Nanoseconds, StreamId>> by_free_time_;
  StreamAssignment result_;
};

}  // namespace

StreamAssignment bounded_streams(const TaskGraph& graph, std::size_t limit, Nanoseconds sync_cost) {
  if (limit == 0)
    throw InvalidInput("[nimble::bounded_streams] a limit of 0 streams: tasks need at least one");
  if (sync_cost < 0)
    throw InvalidInput("[nimble::bounded_streams] a sync cost of " + std::to_string(sync_cost) +
                       " ns is negative");
  return ListScheduler(graph, limit, sync_cost).run();
}

}  // namespace nimble
