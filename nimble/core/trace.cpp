#include "nimble/core/trace.h"

#include <algorithm>
#include <string>
#include <vector>

#include "nimble/core/json/writer.h"
#include "nimble/core/step_walk.h"

namespace nimble {

using json_format::Object;

std::string to_trace(const TaskGraph& graph, const Schedule& schedule, const Simulation& timeline) {
  auto microseconds = [](Nanoseconds time) { return static_cast<double>(time) / 1000.0; };
  const std::vector<StreamId> stream_of = schedule.stream_of();
  std::vector<std::string> events;
  for (std::uint32_t s = 0; s < schedule.streams.size(); ++s)
    events.push_back(json_format::line({{"ph", "M"},
                                        {"name", "thread_name"},
                                        {"pid", 0},
                                        {"tid", s},
                                        {"args", {{"name", "stream " + std::to_string(s)}}}}));
  for (TaskId task : schedule.launch_order) {
    const TaskTime& time = timeline.tasks[task.index()];
    events.push_back(json_format::line({{"ph", "X"},
                                        {"name", graph.name(task)},
                                        {"cat", "task"},
                                        {"pid", 0},
                                        {"tid", stream_of[task.index()].value},
                                        {"ts", microseconds(time.start)},
                                        {"dur", microseconds(time.end - time.start)}}));
  }
  std::size_t arrow = 0;
  auto flow = [&](const char* phase, TaskId task, Nanoseconds time) {
    Object event{{"ph", phase},
                 {"name", "wait"},
                 {"cat", "wait"},
                 {"id", arrow},
                 {"pid", 0},
                 {"tid", stream_of[task.index()].value},
                 {"ts", microseconds(time)}};
    if (*phase == 'f') event["bp"] = "e";  // end at the slice that encloses this time, not at the next one
    events.push_back(json_format::line(event));
  };
  for (const auto& [before, after] : waits_between_tasks(schedule)) {
    // An arrow belongs to the slice that is open at its time, so it leaves just before the end.
    flow("s", before, std::max(timeline.tasks[before.index()].start, timeline.tasks[before.index()].end - 1));
    flow("f", after, timeline.tasks[after.index()].start);
    ++arrow;
  }
  return "{\"displayTimeUnit\": \"ns\", \"traceEvents\": " + json_format::lines(events) + "}\n";
}

}  // namespace nimble
