#include "report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace nimble::tools {
namespace {

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string duration(Nanoseconds time) {
  const auto value = static_cast<double>(time);
  if (time < 1'000'000) return number("%.1f us", value / 1e3);
  if (time < 1'000'000'000) return number("%.2f ms", value / 1e6);
  return number("%.3g s", value / 1e9);
}

std::string size(std::uint64_t bytes) {
  constexpr std::array units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return number("%.1f ", value) + units[unit];
}

std::string ratio(double a, double b) { return b == 0 ? "-" : number("%.2f", a / b); }
std::string arena_ratio(const Summary& s) {
  return ratio(static_cast<double>(s.arena_bytes), static_cast<double>(s.arena_lower_bound));
}
std::string speedup(const Summary& s) {
  return ratio(static_cast<double>(s.one_stream), static_cast<double>(s.predicted));
}

// How many tasks this schedule can have running at once, at most.
std::size_t parallelism(const Summary& s) { return std::min(s.streams, s.degree_of_concurrency); }

std::string details(const NamedSummary& graph) {
  const Summary& s = graph.summary;
  const std::vector<std::array<std::string, 2>> lines = {
      {"graph", graph.name},
      {"tasks", std::to_string(s.tasks)},
      {"edges", std::to_string(s.edges) + ", of which needed |E'| = " + std::to_string(s.reduced_edges)},
      {"matching", "|M| = " + std::to_string(s.matching)},
      {"streams", std::to_string(s.streams)},
      {"syncs", std::to_string(s.syncs)},
      {"degree of concurrency", std::to_string(s.degree_of_concurrency)},
      {"arena", size(s.arena_bytes) + ", " + arena_ratio(s) + " of the one-stream lower bound of " +
                    size(s.arena_lower_bound) + "; all buffers " + size(s.buffer_bytes)},
      {"time, lower bounds", "critical path " + duration(s.bounds.critical_path) + ", on " +
                                 std::to_string(parallelism(s)) + " streams " +
                                 duration(s.bounds.time(parallelism(s)))},
      {"time, predicted", duration(s.predicted) + "; on one stream " + duration(s.one_stream) + " (" +
                              speedup(s) + " times as long)"},
  };
  std::string out;
  for (const auto& [label, text] : lines) out += label + std::string(24 - label.size(), ' ') + text + "\n";
  return out;
}

std::string table(std::span<const NamedSummary> graphs) {
  std::vector<std::vector<std::string>> rows = {{"graph", "tasks", "edges", "|E'|", "|M|", "streams", "syncs",
                                                 "degree", "arena", "/bound", "critical path", "one stream",
                                                 "predicted", "speed-up"}};
  for (const auto& [name, s] : graphs)
    rows.push_back({name, std::to_string(s.tasks), std::to_string(s.edges), std::to_string(s.reduced_edges),
                    std::to_string(s.matching), std::to_string(s.streams), std::to_string(s.syncs),
                    std::to_string(s.degree_of_concurrency), size(s.arena_bytes), arena_ratio(s),
                    duration(s.bounds.critical_path), duration(s.one_stream), duration(s.predicted),
                    speedup(s)});
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string out;
  for (const auto& row : rows) {
    out += row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (std::size_t c = 1; c < row.size(); ++c)
      out += std::string(2 + widths[c] - row[c].size(), ' ') + row[c];
    out += "\n";
  }
  return out;
}

}  // namespace

std::string report(std::span<const NamedSummary> graphs) {
  return graphs.size() == 1 ? details(graphs.front()) : table(graphs);
}

std::string json_report(std::span<const NamedSummary> graphs) {
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  for (const auto& [name, s] : graphs)
    report.push_back({{"graph", name},
                      {"tasks", s.tasks},
                      {"edges", s.edges},
                      {"reduced_edges", s.reduced_edges},
                      {"matching", s.matching},
                      {"streams", s.streams},
                      {"syncs", s.syncs},
                      {"degree_of_concurrency", s.degree_of_concurrency},
                      {"arena_bytes", s.arena_bytes},
                      {"arena_lower_bound", s.arena_lower_bound},
                      {"buffer_bytes", s.buffer_bytes},
                      {"critical_path_ns", s.bounds.critical_path},
                      {"work_ns", s.bounds.work},
                      {"one_stream_ns", s.one_stream},
                      {"predicted_ns", s.predicted}});
  // Names from a file may hold anything; what is no UTF-8 must not end the program.
  return report.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string headline(const NamedSummary& graph) {
  const Summary& s = graph.summary;
  return graph.name + ": " + std::to_string(s.tasks) + " tasks on " + std::to_string(s.streams) +
         " streams with " + std::to_string(s.syncs) + " syncs, " + duration(s.predicted) +
         " (one stream: " + duration(s.one_stream) + ")";
}

}  // namespace nimble::tools
