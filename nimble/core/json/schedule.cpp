#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>

#include "nimble/core/json.h"
#include "nimble/core/json/reader.h"
#include "nimble/core/json/writer.h"
#include "nimble/core/quote.h"

namespace nimble {
namespace {

using json_format::Object;
using json_format::Value;

constexpr std::string_view kFormat = "nimble-schedule";

using TaskNames = std::unordered_map<std::string_view, TaskId>;

TaskNames names_of_tasks(const TaskGraph& graph) {
  TaskNames names;
  for (std::uint32_t t = 0; t < graph.task_count(); ++t) names.emplace(graph.name(TaskId{t}), TaskId{t});
  return names;
}

TaskId read_task(const Value& value, const TaskNames& names) {
  auto found = names.find(value.string());
  if (found == names.end()) value.fail("the graph has no task " + quote(value.string()));
  return found->second;
}

EventId read_event(const Value& value) {
  return EventId{
      static_cast<std::uint32_t>(value.unsigned_integer(std::numeric_limits<std::uint32_t>::max()))};
}

Step read_step(const Value& value, const TaskNames& names) {
  value.expect_object({}, {"run", "record", "wait"});
  if (value.has("run") + value.has("record") + value.has("wait") != 1)
    value.fail("must have exactly one of 'run', 'record' and 'wait'");
  if (value.has("run")) return Run{read_task(value.member("run"), names)};
  if (value.has("record")) return RecordEvent{read_event(value.member("record"))};
  return WaitEvent{read_event(value.member("wait"))};
}

std::vector<std::uint64_t> read_offsets(const Value& list, std::span<const BufferSpec> buffers) {
  std::unordered_map<std::string_view, std::size_t> index_of;
  for (std::size_t b = 0; b < buffers.size(); ++b) index_of.emplace(buffers[b].name, b);
  std::vector<std::optional<std::uint64_t>> found(buffers.size());
  for (std::size_t i = 0; i < list.array_size(); ++i) {
    const Value value = list.element(i);
    value.expect_object({"buffer", "offset"});
    const std::string& name = value.member("buffer").string();
    auto index = index_of.find(name);
    if (index == index_of.end()) value.member("buffer").fail("the graph has no buffer " + quote(name));
    if (found[index->second]) value.member("buffer").fail(quote(name) + " has two offsets");
    found[index->second] = value.member("offset").unsigned_integer();
  }
  std::vector<std::uint64_t> offsets;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (!found[b]) list.fail("there is no offset for buffer " + quote(buffers[b].name));
    offsets.push_back(*found[b]);
  }
  return offsets;
}

Object step_object(const Step& step, const TaskGraph& graph) {
  if (const Run* run = std::get_if<Run>(&step)) return {{"run", graph.name(run->task)}};
  if (const RecordEvent* record = std::get_if<RecordEvent>(&step)) return {{"record", record->event.value}};
  return {{"wait", std::get<WaitEvent>(step).event.value}};
}

}  // namespace

Schedule schedule_from_json(std::string_view text, const GraphFile& file, std::string_view source) {
  const json_format::Origin origin{"schedule_from_json", source};
  const nlohmann::json json = json_format::parse(text, origin);
  const Value document(json, origin);
  json_format::expect_header(document, kFormat);
  document.expect_object({"format", "version", "graph", "event_count", "launch_order", "streams", "memory"});
  if (const std::string expected = fingerprint(file); document.member("graph").string() != expected)
    document.member("graph").fail("this schedule was made for another graph (" +
                                  quote(document.member("graph").string()) + ", here " + quote(expected) +
                                  ")");

  Schedule schedule;
  const TaskNames names = names_of_tasks(file.graph);
  schedule.event_count = document.member("event_count").unsigned_integer();
  const Value launch_order = document.member("launch_order");
  for (std::size_t i = 0; i < launch_order.array_size(); ++i)
    schedule.launch_order.push_back(read_task(launch_order.element(i), names));
  const Value streams = document.member("streams");
  for (std::size_t s = 0; s < streams.array_size(); ++s) {
    const Value steps = streams.element(s);
    StreamProgram& program = schedule.streams.emplace_back();
    for (std::size_t i = 0; i < steps.array_size(); ++i)
      program.push_back(read_step(steps.element(i), names));
  }
  const Value memory = document.member("memory");
  memory.expect_object({"arena_bytes", "lower_bound", "offsets"});
  schedule.memory.arena_bytes = memory.member("arena_bytes").unsigned_integer();
  schedule.memory.lower_bound = memory.member("lower_bound").unsigned_integer();
  schedule.memory.offsets = read_offsets(memory.member("offsets"), file.buffers);
  return schedule;
}

std::string to_json(const Schedule& schedule, const GraphFile& file) {
  std::vector<std::string> streams, offsets;
  Object launch_order = Object::array();
  for (TaskId task : schedule.launch_order) launch_order.push_back(file.graph.name(task));
  for (const StreamProgram& program : schedule.streams) {
    Object steps = Object::array();
    for (const Step& step : program) steps.push_back(step_object(step, file.graph));
    streams.push_back(json_format::line(steps));
  }
  for (std::size_t b = 0; b < file.buffers.size(); ++b)
    offsets.push_back(
        json_format::line({{"buffer", file.buffers[b].name}, {"offset", schedule.memory.offsets.at(b)}}));
  return "{\"format\": \"" + std::string(kFormat) +
         "\", \"version\": " + std::to_string(json_format::kVersion) + ", \"graph\": \"" + fingerprint(file) +
         "\",\n\"event_count\": " + std::to_string(schedule.event_count) +
         ",\n\"launch_order\": " + json_format::line(launch_order) +
         ",\n\"streams\": " + json_format::lines(streams) +
         ",\n\"memory\": {\"arena_bytes\": " + std::to_string(schedule.memory.arena_bytes) +
         ", \"lower_bound\": " + std::to_string(schedule.memory.lower_bound) +
         ", \"offsets\": " + json_format::lines(offsets) + "}}\n";
}

}  // namespace nimble
