#include "nimble/core/schedule.h"

#include <algorithm>
#include <optional>

#include "nimble/core/error.h"
#include "nimble/core/memory_waits.h"
#include "nimble/core/minimum_equivalent_graph.h"

namespace nimble {

std::size_t Schedule::wait_count() const {
  std::size_t count = 0;
  for (const StreamProgram& stream : streams)
    count += static_cast<std::size_t>(std::count_if(stream.begin(), stream.end(), [](const Step& step) {
      return std::holds_alternative<WaitEvent>(step);
    }));
  return count;
}

std::vector<StreamId> Schedule::stream_of() const {
  std::vector<StreamId> stream_of(launch_order.size());
  for (std::uint32_t s = 0; s < streams.size(); ++s)
    for (const Step& step : streams[s])
      if (const Run* run = std::get_if<Run>(&step)) stream_of[run->task.index()] = StreamId{s};
  return stream_of;
}

Schedule make_schedule(const TaskGraph& graph, const StreamAssignment& streams) {
  const std::vector<Wait> waits = plan_syncs(graph, streams);
  std::vector<std::optional<EventId>> event_of(graph.task_count());
  for (const Wait& wait : waits) event_of[wait.before.index()] = EventId{};

  Schedule schedule;
  schedule.streams.resize(streams.stream_count);
  schedule.launch_order = streams.launch_order;
  auto wait = waits.begin();
  for (TaskId task : streams.launch_order) {
    StreamProgram& program = schedule.streams[streams.stream_of[task.index()].index()];
    for (; wait != waits.end() && wait->after == task; ++wait)
      program.push_back(WaitEvent{*event_of[wait->before.index()]});
    program.push_back(Run{task});
    if (auto& event = event_of[task.index()]) {
      event = EventId{static_cast<std::uint32_t>(schedule.event_count++)};
      program.push_back(RecordEvent{*event});
    }
  }
  return schedule;
}

TaskGraph happens_before_graph(const TaskGraph& graph, const Schedule& schedule) {
  std::vector<std::optional<TaskId>> recorded_after(schedule.event_count);
  for (const StreamProgram& program : schedule.streams) {
    std::optional<TaskId> last;
    for (const Step& step : program) {
      if (const Run* run = std::get_if<Run>(&step)) last = run->task;
      if (const RecordEvent* record = std::get_if<RecordEvent>(&step))
        recorded_after[record->event.index()] = last;
    }
  }
  std::vector<Edge> order;
  for (const StreamProgram& program : schedule.streams) {
    std::vector<TaskId> before;  // what the next task of this stream comes after
    for (const Step& step : program) {
      if (const WaitEvent* wait = std::get_if<WaitEvent>(&step)) {
        if (const auto task = recorded_after[wait->event.index()]) before.push_back(*task);
      } else if (const Run* run = std::get_if<Run>(&step)) {
        for (TaskId task : before) order.push_back({task, run->task});
        before.assign(1, run->task);
      }
    }
  }
  return graph.with_edges(order);
}

StreamLimit StreamLimit::at_most(std::size_t n) {
  if (n == 0) throw InvalidInput("[nimble::StreamLimit] at most 0 streams: tasks need at least one");
  return {n};
}

Schedule plan(const TaskGraph& graph, std::span<const BufferSpec> buffers, StreamLimit limit) {
  const TaskGraph reduced = minimum_equivalent_graph(graph);
  const StreamAssignment streams = limit.count == 0   ? maximum_concurrency(reduced)
                                   : limit.count == 1 ? single_stream(reduced)
                                                      : bounded_streams(reduced, limit.count);
  Schedule schedule = make_schedule(reduced, streams);
  schedule.memory = plan_memory(buffers, happens_before_graph(graph, schedule), schedule.launch_order);
  // Maximum concurrency is to order nothing that the graph does not order.
  return limit.count > 1 ? with_waits_for_memory(graph, buffers, std::move(schedule)) : schedule;
}

}  // namespace nimble
