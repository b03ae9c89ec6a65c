#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "nimble/core/error.h"
#include "nimble/core/json.h"
#include "nimble/core/json/reader.h"
#include "nimble/core/json/writer.h"
#include "nimble/core/quote.h"

namespace nimble {
namespace {

using json_format::Object;
using json_format::Value;

constexpr std::string_view kFormat = "nimble-graph";

// Sums stay far from overflow, so that neither planning nor simulating has to think of it: thirty years, four
// EiB.
constexpr std::uint64_t kMostCost = 1'000'000'000'000'000'000;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

// The names of the tasks; views into the document.
using TaskNames = std::unordered_map<std::string_view, TaskId>;

TaskId find_task(const TaskNames& names, const Value& value) {
  auto found = names.find(value.string());
  if (found == names.end()) value.fail("there is no task " + quote(value.string()));
  return found->second;
}

TaskNames read_tasks(const Value& tasks, TaskGraphBuilder& builder) {
  TaskNames names;
  std::uint64_t total_cost = 0;
  if (tasks.array_size() == 0) tasks.fail("a graph needs at least one task");
  for (std::size_t i = 0; i < tasks.array_size(); ++i) {
    const Value task = tasks.element(i);
    task.expect_object({"name"}, {"cost_ns", "after"});
    const std::string_view name = task.member("name").name();
    std::optional<Nanoseconds> cost;
    if (task.has("cost_ns")) {
      cost = static_cast<Nanoseconds>(task.member("cost_ns").unsigned_integer(kMostCost));
      total_cost += static_cast<std::uint64_t>(*cost);
      if (total_cost > kMostCost)
        task.member("cost_ns").fail("the costs up to here add up to more than " + std::to_string(kMostCost) +
                                    " ns");
    }
    if (!names.try_emplace(name, TaskId{static_cast<std::uint32_t>(i)}).second)
      task.member("name").fail("there is another task " + quote(name));
    builder.add_task(std::string(name), cost);
  }
  return names;
}

void read_edges(const Value& tasks, const TaskNames& names, TaskGraphBuilder& builder) {
  for (std::size_t i = 0; i < tasks.array_size(); ++i) {
    const Value task = tasks.element(i);
    if (!task.has("after")) continue;
    const Value after = task.member("after");
    for (std::size_t k = 0; k < after.array_size(); ++k) {
      const TaskId before = find_task(names, after.element(k));
      if (before.index() == i) after.element(k).fail("a task cannot come after itself");
      builder.add_edge(before, TaskId{static_cast<std::uint32_t>(i)});
    }
  }
}

std::vector<TaskId> read_uses(const Value& uses, const TaskNames& names) {
  if (uses.array_size() == 0) uses.fail("a buffer needs at least one task that uses it");
  std::vector<TaskId> tasks;
  std::unordered_set<TaskId> seen;
  for (std::size_t i = 0; i < uses.array_size(); ++i) {
    tasks.push_back(find_task(names, uses.element(i)));
    if (!seen.insert(tasks.back()).second)
      uses.element(i).fail(quote(uses.element(i).string()) + " is listed twice");
  }
  return tasks;
}

std::vector<BufferSpec> read_buffers(const Value& list, const TaskNames& names) {
  std::vector<BufferSpec> buffers;
  std::unordered_set<std::string_view> seen;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < list.array_size(); ++i) {
    const Value value = list.element(i);
    value.expect_object({"name", "bytes", "uses"}, {"alignment"});
    BufferSpec buffer;
    buffer.name = value.member("name").name();
    buffer.bytes = value.member("bytes").unsigned_integer(kMostBytes);
    if (value.has("alignment")) {
      buffer.alignment = value.member("alignment").unsigned_integer(kMostBytes);
      if (!std::has_single_bit(buffer.alignment)) value.member("alignment").fail("must be a power of two");
    }
    buffer.uses = read_uses(value.member("uses"), names);
    if (!seen.insert(value.member("name").string()).second)
      value.member("name").fail("there is another buffer " + quote(buffer.name));
    // Both terms are at most 2^62, and so is the total so far: the sum cannot wrap.
    total += buffer.bytes + (buffer.alignment - 1);
    if (total > kMostBytes)
      value.member("bytes").fail("the sizes up to here add up to more than " + std::to_string(kMostBytes) +
                                 " bytes");
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

Object names_of(const TaskGraph& graph, std::span<const TaskId> tasks) {
  Object names = Object::array();
  for (TaskId task : tasks) names.push_back(graph.name(task));
  return names;
}

}  // namespace

GraphFile graph_from_json(std::string_view text, std::string_view source) {
  const json_format::Origin origin{"graph_from_json", source};
  const nlohmann::json json = json_format::parse(text, origin);
  const Value document(json, origin);
  json_format::expect_header(document, kFormat);
  document.expect_object({"format", "version", "tasks"}, {"buffers"});

  GraphFile file;
  TaskGraphBuilder builder;
  const Value tasks = document.member("tasks");
  const TaskNames names = read_tasks(tasks, builder);
  read_edges(tasks, names, builder);
  if (document.has("buffers")) file.buffers = read_buffers(document.member("buffers"), names);
  try {
    file.graph = std::move(builder).build();
  } catch (const InvalidInput& error) {
    const std::string_view message = error.what();
    origin.fail(
        std::string(message.substr(message.find("] ") + 2)));  // our own function's name begins the message
  }
  return file;
}

std::string to_json(const GraphFile& file) {
  const TaskGraph& graph = file.graph;
  std::vector<std::string> tasks, buffers;
  for (std::uint32_t t = 0; t < graph.task_count(); ++t) {
    const TaskId id{t};
    Object task{{"name", graph.name(id)}};
    if (graph.cost(id)) task["cost_ns"] = *graph.cost(id);
    if (!graph.predecessors(id).empty()) task["after"] = names_of(graph, graph.predecessors(id));
    tasks.push_back(json_format::line(task));
  }
  for (const BufferSpec& buffer : file.buffers)
    buffers.push_back(json_format::line({{"name", buffer.name},
                                         {"bytes", buffer.bytes},
                                         {"alignment", buffer.alignment},
                                         {"uses", names_of(graph, buffer.uses)}}));
  return "{\"format\": \"" + std::string(kFormat) +
         "\", \"version\": " + std::to_string(json_format::kVersion) +
         ",\n\"tasks\": " + json_format::lines(tasks) + ",\n\"buffers\": " + json_format::lines(buffers) +
         "}\n";
}

}  // namespace nimble
