#include "nimble/engine/report_document.h"

#include <algorithm>

#include "nimble/core/critical_path.h"
#include "nimble/core/json/writer.h"
#include "nimble/core/minimum_equivalent_graph.h"
#include "nimble/core/step_walk.h"
#include "nimble/torch/dependencies.h"

namespace nimble {
namespace {

using json_format::Object;

std::string state_of(const Entry& entry) {
  switch (entry.state.load()) {
    case Entry::State::kUnsettled:
      return "set up";
    case Entry::State::kRecorded:
      return "recorded";
    case Entry::State::kMismatched:
      return "mismatched";
    case Entry::State::kReady:
      return "replayed";
    case Entry::State::kEager:
      return "eager";
  }
  return "";
}

Object notes_of(const Program& program) {
  Object notes = Object::array();
  for (const Note& note : program.notes) {
    notes.push_back({{"what", note.what},
                     {"subject", note.subject},
                     {"how", note.how},
                     {"where", note.where},
                     {"module", note.module}});
  }
  return notes;
}

// What the rewrites made of the parts, and which of them did not stay.
void add_rewrites(Object& notes, const Entry& entry) {
  const auto add = [&](const char* what, const std::string& subject, const std::string& how) {
    notes.push_back({{"what", what}, {"subject", subject}, {"how", how}, {"where", ""}, {"module", ""}});
  };
  constexpr const char* kProgram = "the program";
  if (!entry.why_without_tf32.empty()) {
    add(entry.is_rewritten() ? "rewritten" : "tried", kProgram,
        "once more without TF32: " + entry.why_without_tf32);
  }
  if (!entry.rewrites_dropped.empty()) add("not rewritten", kProgram, entry.rewrites_dropped);
  for (const Part& part : entry.parts) {
    for (const RewriteReport& report : part.rewriting.reports) {
      if (report.dropped.empty()) {
        for (const std::string& site : report.sites) add("rewritten", site, report.name);
      } else {
        add("not rewritten", report.name, report.dropped);
      }
    }
  }
}

Object describe(const Entry& entry) {
  Object notes = entry.program ? notes_of(*entry.program) : Object::array();
  add_rewrites(notes, entry);
  Object object{{"signature", entry.signature.to_string()},
                {"state", state_of(entry)},
                {"reason", entry.why_not_replayed()},
                {"replays", entry.replays.load()},
                {"record_milliseconds", entry.record_milliseconds},
                {"tasks", entry.program ? entry.program->tasks.size() : 0},
                {"notes", std::move(notes)}};
  return object;
}

// Shapes of the tensors of operands; of a long list, which a fused optimizer has, only the beginning.
Object shapes_of(const std::vector<Operand>& operands) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> shapes;
  for (const Operand& operand : operands) {
    for_each_ref(operand, [&](const TensorRef& ref) { shapes.push_back(to_string(ref)); });
  }
  if (shapes.size() > kMost) {
    const std::size_t more = shapes.size() - kMost;
    shapes.resize(kMost);
    shapes.push_back("and " + std::to_string(more) + " more");
  }
  return shapes;
}

Object tasks_of(const Program& program, const Schedule& schedule, const Simulation& planned,
                const Measured& measured) {
  const std::vector<StreamId> stream_of = schedule.stream_of();
  Object tasks = Object::array();
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    tasks.push_back({{"name", task_name(program, TaskId{i})},
                     {"operator", c10::toString(task.op.operator_name())},
                     {"inputs", shapes_of(task.arguments)},
                     {"outputs", shapes_of(task.results)},
                     {"module", task.module.empty() && task.step > 0 ? "optimizer" : task.module},
                     {"node", task.node},
                     {"where", task.where},
                     {"stream", stream_of[i].value},
                     {"cost", measured.costs[i]},
                     {"planned", {planned.tasks[i].start, planned.tasks[i].end}},
                     {"measured", {measured.spans[i].start, measured.spans[i].end}}});
  }
  return tasks;
}

Object edges_of(const TaskGraph& graph) {
  Object edges = Object::array();
  for (std::uint32_t i = 0; i < graph.task_count(); ++i) {
    for (const TaskId after : graph.successors(TaskId{i})) edges.push_back({i, after.value});
  }
  return edges;
}

Object waits_of(const Schedule& schedule) {
  Object waits = Object::array();
  for (const auto& [before, after] : waits_between_tasks(schedule)) {
    waits.push_back({before.value, after.value});
  }
  return waits;
}

Object path_of(const TaskGraph& graph) {
  Object path = Object::array();
  for (const TaskId task : critical_path(graph, kMeasuredMachine)) path.push_back(task.value);
  return path;
}

Object memory_of(const ExecutionPlan& plan, const ExecutableReport& report) {
  const Program& program = *plan.program;
  Object buffers = Object::array();
  for (std::size_t i = 0; i < plan.memory.specs.size(); ++i) {
    const BufferSpec& spec = plan.memory.specs[i];
    Object uses = Object::array();
    for (const TaskId task : spec.uses) uses.push_back(task.value);
    buffers.push_back({{"name", spec.name},
                       {"scratch", program.buffer(plan.memory.buffers[i]).kind == BufferKind::kScratch},
                       {"offset", plan.schedule.memory.offsets[i]},
                       {"bytes", spec.bytes},
                       {"uses", std::move(uses)}});
  }
  std::uint64_t outside = 0, constants = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind == BufferKind::kExternal) outside += buffer.bytes;
    if (buffer.kind == BufferKind::kConstant) constants += buffer.bytes;
  }
  return {{"arena", report.arena_bytes},
          {"one_stream_bound", plan.schedule.memory.lower_bound},
          {"allocated", plan.memory.total_bytes},
          {"unplanned_allocations", report.unplanned_allocations},
          {"inputs_and_results", report.static_bytes},
          {"workspaces", report.workspace_bytes},
          {"outside", outside},
          {"constants", constants},
          {"buffers", std::move(buffers)}};
}

Object tried_of(const Choice& choice) {
  Object tried = Object::array();
  for (const Tried& one : choice.tried) {
    tried.push_back({{"streams", one.streams},
                     {"threads_per_stream", one.threads_per_stream},
                     {"milliseconds", one.milliseconds},
                     {"rejected", one.rejected}});
  }
  return tried;
}

Object kernels_of(const Choice& choice) {
  Object kernels = Object::array();
  for (const TriedKernel& tried : choice.kernels) {
    kernels.push_back({{"like", tried.like},
                       {"tasks", tried.tasks},
                       {"from", tried.from},
                       {"to", tried.to},
                       {"milliseconds_before", tried.times.before},
                       {"milliseconds_after", tried.times.after},
                       {"kept", tried.kept}});
  }
  return kernels;
}

Object describe(const Part& part, const Measured& measured) {
  const Choice& choice = part.choice;
  const ExecutionPlan& plan = choice.executable->plan();
  const ExecutableReport report = choice.executable->report();
  const TaskGraph graph = dependencies(*plan.program, measured.costs);
  const Simulation planned = simulate(graph, plan.schedule, kMeasuredMachine);
  const LowerBounds bounds = lower_bounds(graph, kMeasuredMachine);
  return {{"device", plan.program->device().str()},
          {"streams", choice.streams},
          {"threads_per_stream", report.threads_per_stream},
          {"degree_of_concurrency", choice.degree_of_concurrency},
          {"dependencies", graph.edge_count()},
          {"replay", measured.replay_nanoseconds},
          {"replays", measured.replays},
          {"launch", measured.launch},
          {"planned_total", planned.total},
          {"critical_path_length", bounds.critical_path},
          {"work", bounds.work},
          {"clock", measured.clock},
          {"plan_milliseconds", choice.plan_milliseconds},
          {"tune_milliseconds", choice.tune_milliseconds},
          {"tried", tried_of(choice)},
          {"kernels", kernels_of(choice)},
          {"kernels_milliseconds", choice.kernels_milliseconds},
          {"tasks", tasks_of(*plan.program, plan.schedule, planned, measured)},
          {"edges", edges_of(minimum_equivalent_graph(graph))},
          {"waits", waits_of(plan.schedule)},
          {"critical_path", path_of(graph)},
          {"memory", memory_of(plan, report)}};
}

bool has_tasks(const Part& part) { return part.choice.tasks > 0; }

// What each part is, as a person would call it.
std::string name_of(const Entry& entry, std::size_t part) {
  if (entry.derivative) return part == 0 ? "forward" : "backward";
  const bool is_only_one = std::ranges::count_if(entry.parts, has_tasks) == 1;
  return is_only_one ? "replay" : "part " + std::to_string(part + 1);
}

}  // namespace

std::string report_document(std::span<const std::shared_ptr<Entry>> entries, const Entry* measured,
                            std::span<const Measured> parts) {
  Object signatures = Object::array();
  for (const auto& entry : entries) {
    signatures.push_back(describe(*entry));
    signatures.back()["shown"] = entry.get() == measured;
  }
  Object described = Object::array();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!has_tasks(measured->parts[i])) continue;
    described.push_back(describe(measured->parts[i], parts[i]));
    described.back()["name"] = name_of(*measured, i);
    const bool host_follows = !measured->derivative && i + 1 < parts.size();
    described.back()["then_on_host"] = host_follows ? measured->guard->name_of_step(i) : "";
  }
  return json_format::line({{"signatures", std::move(signatures)}, {"parts", std::move(described)}}) + '\n';
}

}  // namespace nimble
