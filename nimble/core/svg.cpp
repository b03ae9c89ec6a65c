#include "nimble/core/svg.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "nimble/core/palette.h"
#include "nimble/core/step_walk.h"

namespace nimble {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

// What of a name fits into `room` characters: all of it, its last part (of "block1.conv"), or a beginning of
// that.
std::string label(std::string_view name, std::size_t room) {
  auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };  // of UTF-8
  auto fits = [&](std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, starts_character)) <= room;
  };
  if (fits(name)) return std::string(name);
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (fits(last)) return std::string(last);
  if (room < 3) return "";
  std::size_t end = 0;
  for (std::size_t characters = 0; characters < room; ++end) characters += starts_character(last[end]);
  return std::string(last.substr(0, end - 1)) + "…";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string duration(Nanoseconds time) {
  char text[48];
  if (time < 1'000'000)
    std::snprintf(text, sizeof text, "%.4g us", static_cast<double>(time) / 1e3);
  else
    std::snprintf(text, sizeof text, "%.4g ms", static_cast<double>(time) / 1e6);
  return text;
}

// A round step (1, 2 or 5 times a power of ten) that divides the axis into about eight.
Nanoseconds tick_step(Nanoseconds total) {
  Nanoseconds step = 1;
  while (true)
    for (Nanoseconds factor : {1, 2, 5, 10}) {
      if (factor == 10)
        step *= 10;
      else if (total / (step * factor) <= 8)
        return step * factor;
    }
}

constexpr double kLeft = 76, kTop = 40, kWidth = 900, kRight = 24, kAxis = 34;

// Where times and streams lie in the picture.
struct Layout {
  Nanoseconds total;
  double row;  // the height of a stream

  Layout(const Schedule& schedule, const Simulation& timeline)
      : total(std::max<Nanoseconds>(timeline.total, 1)),
        row(schedule.streams.size() <= 16   ? 30
            : schedule.streams.size() <= 48 ? 18
                                            : 8) {}

  double x(Nanoseconds time) const {
    return kLeft + kWidth * static_cast<double>(time) / static_cast<double>(total);
  }
  double top(StreamId stream) const { return kTop + row * static_cast<double>(stream.value); }
  double middle(StreamId stream) const { return top(stream) + row / 2; }
};

std::string header(double width, double height) {
  const std::string size = number(width) + " " + number(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size + "\" width=\"" + number(width) +
         "\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
         "<style>\n"
         "  .paper { fill: #ffffff; } text { fill: #222222; } .grid { stroke: #dddddd; }\n"
         "  .wait { fill: none; stroke: #555555; stroke-width: 1.2; pointer-events: none; } .head { fill: "
         "#555555; }\n"
         "  @media (prefers-color-scheme: dark) {\n"
         "    .paper { fill: #16181d; } text { fill: #e6e6e6; } .grid { stroke: #3a3d45; }\n"
         "    .wait { stroke: #b8b8b8; } .head { fill: #b8b8b8; }\n"
         "  }\n"
         "  .name { fill: #ffffff; font-size: 11px; pointer-events: none; }\n"
         "</style>\n"
         "<defs><marker id=\"head\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"6\" "
         "markerHeight=\"6\" "
         "orient=\"auto\"><path class=\"head\" d=\"M0,0 L6,3 L0,6 z\"/></marker></defs>\n"
         "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n";
}

std::string axis(const Layout& layout, double bottom) {
  std::string out;
  const Nanoseconds step = tick_step(layout.total);
  for (Nanoseconds tick = 0; tick <= layout.total / step; ++tick) {
    const Nanoseconds time = tick * step;
    const std::string x = number(layout.x(time));
    out += "<line class=\"grid\" x1=\"" + x + "\" y1=\"" + number(kTop) + "\" x2=\"" + x + "\" y2=\"" +
           number(bottom) + "\"/><text x=\"" + x + "\" y=\"" + number(bottom + 18) +
           "\" text-anchor=\"middle\">" + duration(time) + "</text>\n";
  }
  return out;
}

std::string stream_labels(const Layout& layout, std::size_t streams) {
  const std::uint32_t every = layout.row < 12 ? 4 : 1;
  std::string out;
  for (std::uint32_t s = 0; s < streams; s += every)
    out += "<text x=\"" + number(kLeft - 8) + "\" y=\"" + number(layout.middle(StreamId{s}) + 4) +
           "\" text-anchor=\"end\">stream " + std::to_string(s) + "</text>\n";
  return out;
}

std::string box(const Layout& layout, const std::string& name, StreamId stream, const TaskTime& time) {
  const double x = layout.x(time.start), width = std::max(layout.x(time.end) - x, 0.5);
  const double gap = layout.row / 10;
  std::string out = "<rect x=\"" + number(x) + "\" y=\"" + number(layout.top(stream) + gap) + "\" width=\"" +
                    number(width) + "\" height=\"" + number(layout.row - 2 * gap) + "\" rx=\"" +
                    number(std::min(3.0, width / 4)) + "\" fill=\"" + std::string(stream_colour(stream)) +
                    "\"><title>" + escaped(name) + ": " + duration(time.start) + " to " + duration(time.end) +
                    " on stream " + std::to_string(stream.value) + "</title></rect>\n";
  const std::string text = label(name, static_cast<std::size_t>(std::max(width - 8, 0.0) / 6.2));
  if (layout.row >= 16 && !text.empty())
    out += "<text class=\"name\" x=\"" + number(x + 4) + "\" y=\"" + number(layout.middle(stream) + 4) +
           "\">" + escaped(text) + "</text>\n";
  return out;
}

std::string arrow(double x1, double y1, double x2, double y2) {
  const double bend = std::max((x2 - x1) / 2, 6.0);
  return "<path class=\"wait\" marker-end=\"url(#head)\" d=\"M" + number(x1) + "," + number(y1) + " C" +
         number(x1 + bend) + "," + number(y1) + " " + number(x2 - bend) + "," + number(y2) + " " +
         number(x2) + "," + number(y2) + "\"/>\n";
}

}  // namespace

std::string to_svg(const TaskGraph& graph, const Schedule& schedule, const Simulation& timeline,
                   std::string_view title) {
  const Layout layout(schedule, timeline);
  const double bottom = kTop + layout.row * static_cast<double>(schedule.streams.size());
  std::string out = header(kLeft + kWidth + kRight, bottom + kAxis);
  out += "<text x=\"" + number(kLeft) + "\" y=\"24\" font-weight=\"600\">" + escaped(title) + "</text>\n";
  out += axis(layout, bottom) + stream_labels(layout, schedule.streams.size());
  const std::vector<StreamId> stream_of = schedule.stream_of();
  for (TaskId task : schedule.launch_order)
    out += box(layout, graph.name(task), stream_of[task.index()], timeline.tasks[task.index()]);
  for (const auto& [before, after] : waits_between_tasks(schedule))
    out += arrow(layout.x(timeline.tasks[before.index()].end), layout.middle(stream_of[before.index()]),
                 layout.x(timeline.tasks[after.index()].start), layout.middle(stream_of[after.index()]));
  return out + "</svg>\n";
}

}  // namespace nimble
