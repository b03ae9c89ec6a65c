#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nimble/core/schedule.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// A task graph and the buffers its tasks use, as a graph file holds them.
struct GraphFile {
  TaskGraph graph;
  std::vector<BufferSpec> buffers;
  friend bool operator==(const GraphFile&, const GraphFile&) = default;
};

// Sixteen hexadecimal digits over all that decides whether a schedule is right: names, edges and buffers, but
// not costs, which may be measured again.
std::string fingerprint(const GraphFile& graph);

// The two file formats of docs/formats.md. Writing and reading back gives an equal value.
std::string to_json(const GraphFile& graph);
std::string to_json(const Schedule& schedule, const GraphFile& graph);

// The readers accept nothing that the formats do not allow, and throw InvalidInput with what is wrong and
// where: a position in the text, a field such as tasks[3].cost_ns, or a task. `source` names the file in
// those messages.
GraphFile graph_from_json(std::string_view text, std::string_view source = "graph");

// Refuses a schedule that was made for another graph. Whether the schedule is right is for `verify` to say.
Schedule schedule_from_json(std::string_view text, const GraphFile& graph,
                            std::string_view source = "schedule");

}  // namespace nimble
