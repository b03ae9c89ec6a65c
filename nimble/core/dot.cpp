#include "nimble/core/dot.h"

#include <string_view>

#include "nimble/core/palette.h"
#include "nimble/core/step_walk.h"

namespace nimble {
namespace {

std::string node(TaskId task) { return "t" + std::to_string(task.value); }

std::string escaped(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string to_dot(const TaskGraph& graph, const Schedule& schedule) {
  std::string out =
      "digraph schedule {\n"
      "  rankdir=LR;\n"
      "  node [shape=box, style=\"filled,rounded\", fontname=\"sans-serif\", fontcolor=white, color=white];\n"
      "  edge [color=\"#888888\"];\n";
  std::string order;
  for (std::uint32_t s = 0; s < schedule.streams.size(); ++s) {
    const TaskId* previous = nullptr;
    for (const Step& step : schedule.streams[s]) {
      const Run* run = std::get_if<Run>(&step);
      if (!run) continue;
      out += "  " + node(run->task) + " [label=\"" + escaped(graph.name(run->task)) + "\", fillcolor=\"" +
             std::string(stream_colour(StreamId{s})) + "\", tooltip=\"stream " + std::to_string(s) + "\"];\n";
      if (previous) order += "  " + node(*previous) + " -> " + node(run->task) + ";\n";
      previous = &run->task;
    }
  }
  for (const auto& [before, after] : waits_between_tasks(schedule))
    order += "  " + node(before) + " -> " + node(after) + " [style=dashed];\n";
  return out + order + "}\n";
}

}  // namespace nimble
