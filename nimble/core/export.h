#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nimble/core/schedule.h"
#include "nimble/core/simulate.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// A task graph and the buffers its tasks use, as graph.json holds them.
struct GraphFile {
  TaskGraph graph;
  std::vector<BufferSpec> buffers;
  friend bool operator==(const GraphFile&, const GraphFile&) = default;
};

// JSON with a version field, documented in docs/formats.md. The readers throw InvalidInput with what is wrong and
// where (position, field or task); `source` names the file in those messages.
std::string to_json(const GraphFile& graph);
std::string to_json(const Schedule& schedule, const TaskGraph& graph);
GraphFile graph_from_json(std::string_view text, std::string_view source = "graph");
Schedule schedule_from_json(std::string_view text, const GraphFile& graph, std::string_view source = "schedule");

// Graphviz: one node for each task, coloured by stream; waits are dashed.
std::string to_dot(const TaskGraph& graph, const Schedule& schedule);

// Chrome trace events (Perfetto, chrome://tracing): one track for each stream, an arrow for each wait.
std::string to_trace(const TaskGraph& graph, const Schedule& schedule, const Simulation& timeline);

// Writes to a temporary name beside `path` and renames, so that no reader ever sees half a file.
void write_file(const std::filesystem::path& path, std::string_view text);
std::string read_file(const std::filesystem::path& path);

}  // namespace nimble
