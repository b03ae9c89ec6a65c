#include "nimble/core/verify.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "nimble/core/error.h"
#include "nimble/core/quote.h"
#include "nimble/core/verify/memory_conflicts.h"
#include "nimble/core/verify/questions.h"
#include "nimble/core/verify/step_order.h"

namespace nimble {
namespace {

using verification::kNoNode;
using verification::Node;
using verification::Question;
using verification::StepOrder;
using Kind = Violation::Kind;

std::string text(StreamId stream) { return "stream " + std::to_string(stream.value); }
std::string text(EventId event) { return "event " + std::to_string(event.value); }

class Verifier {
 public:
  Verifier(const TaskGraph& graph, std::span<const BufferSpec> buffers, const Schedule& schedule)
      : graph_(graph), buffers_(buffers), schedule_(schedule) {}

  std::vector<Violation> run() {
    check_every_task_runs_once();
    check_every_task_is_launched_once();
    check_events();
    const StepOrder order = verification::step_order(graph_.task_count(), schedule_);
    check_no_stream_is_stuck(order);
    const bool memory_can_be_checked = check_places();
    if (order.stuck.empty()) {
      check_edges(order);
      check_launch_order(order);
      if (memory_can_be_checked) check_overlaps(order);
    }
    return std::move(violations_);
  }

 private:
  void report(Kind kind, std::string message) { violations_.push_back({kind, std::move(message)}); }

  bool known(TaskId task) const { return task.index() < graph_.task_count(); }
  std::string name(TaskId task) const { return quote(graph_.name(task)); }
  std::string name(BufferId buffer) const { return quote(buffers_[buffer.index()].name); }

  void check_every_task_runs_once() {
    std::vector<std::optional<StreamId>> stream_of(graph_.task_count());
    for (std::uint32_t s = 0; s < schedule_.streams.size(); ++s)
      for (const Step& step : schedule_.streams[s]) {
        const Run* run = std::get_if<Run>(&step);
        if (!run) continue;
        const StreamId here{s};
        if (!known(run->task)) {
          report(Kind::kUnknownTask, text(here) + " runs task " + std::to_string(run->task.value) +
                                         ", which the graph does not have");
        } else if (auto& stream = stream_of[run->task.index()]; stream) {
          report(Kind::kTaskRepeated,
                 name(run->task) + " runs twice: on " + text(*stream) + " and on " + text(here));
        } else {
          stream = here;
        }
      }
    for (std::uint32_t t = 0; t < stream_of.size(); ++t)
      if (!stream_of[t]) report(Kind::kTaskMissing, name(TaskId{t}) + " runs on no stream");
  }

  void check_every_task_is_launched_once() {
    place_in_launch_order_.assign(graph_.task_count(), kNotLaunched);
    for (std::size_t i = 0; i < schedule_.launch_order.size(); ++i) {
      const TaskId task = schedule_.launch_order[i];
      if (!known(task)) {
        report(Kind::kUnknownTask, "the launch order names task " + std::to_string(task.value) +
                                       ", which the graph does not have");
      } else if (std::size_t& place = place_in_launch_order_[task.index()]; place != kNotLaunched) {
        report(Kind::kTaskRepeated, name(task) + " is in the launch order twice");
      } else {
        place = i;
      }
    }
    for (std::uint32_t t = 0; t < place_in_launch_order_.size(); ++t)
      if (place_in_launch_order_[t] == kNotLaunched)
        report(Kind::kTaskMissing, name(TaskId{t}) + " is not in the launch order");
  }

  void check_events() {
    std::size_t steps = 0;
    for (const StreamProgram& program : schedule_.streams) steps += program.size();
    if (schedule_.event_count > steps)
      report(Kind::kWrongShape, "the schedule claims " + std::to_string(schedule_.event_count) +
                                    " events, but has only " + std::to_string(steps) + " steps");

    std::vector<bool> recorded(std::min(schedule_.event_count, steps), false);
    for (std::uint32_t s = 0; s < schedule_.streams.size(); ++s)
      for (const Step& step : schedule_.streams[s]) {
        const RecordEvent* record = std::get_if<RecordEvent>(&step);
        const WaitEvent* wait = std::get_if<WaitEvent>(&step);
        if (!record && !wait) continue;
        const EventId event = record ? record->event : wait->event;
        if (event.index() >= recorded.size()) {
          report(Kind::kUnknownEvent, text(StreamId{s}) + (record ? " records " : " waits for ") +
                                          text(event) + ", but the schedule has " +
                                          std::to_string(recorded.size()) + " events");
        } else if (record && recorded[event.index()]) {
          report(Kind::kEventRecordedTwice,
                 text(event) + " is recorded a second time, on " + text(StreamId{s}));
        } else if (record) {
          recorded[event.index()] = true;
        }
      }
  }

  void check_no_stream_is_stuck(const StepOrder& order) {
    if (order.stuck.empty()) return;
    std::unordered_map<EventId, StreamId> recorded_on;
    for (std::uint32_t s = 0; s < schedule_.streams.size(); ++s)
      for (const Step& step : schedule_.streams[s])
        if (const RecordEvent* record = std::get_if<RecordEvent>(&step))
          recorded_on.try_emplace(record->event, StreamId{s});

    for (const auto& [stream, stuck_at] : order.stuck) {
      const StreamProgram& program = schedule_.streams[stream.index()];
      auto next = std::find_if(program.begin() + stuck_at, program.end(), [&](const Step& step) {
        return std::holds_alternative<Run>(step) && known(std::get<Run>(step).task);
      });
      const EventId event = std::get<WaitEvent>(program[stuck_at]).event;
      const auto recorder = recorded_on.find(event);
      report(Kind::kDeadlock,
             text(stream) + " waits for ever " +
                 (next == program.end() ? "at its end" : "before " + name(std::get<Run>(*next).task)) + ": " +
                 text(event) +
                 (recorder == recorded_on.end()
                      ? ", which nothing records"
                      : ", which " + text(recorder->second) + " cannot come to record"));
    }
  }

  void check_edges(const StepOrder& order) {
    std::vector<std::pair<TaskId, TaskId>> edges;
    std::vector<Question> questions;
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t)
      for (TaskId before : graph_.predecessors(TaskId{t})) {
        const Node from = order.node_of[before.index()], to = order.node_of[t];
        if (from == kNoNode || to == kNoNode) continue;  // reported as missing
        if (std::ranges::find(order.directly_before(to), from) != order.directly_before(to).end()) continue;
        questions.push_back({from, to, static_cast<std::uint32_t>(edges.size())});
        edges.emplace_back(before, TaskId{t});
      }
    for (std::uint32_t edge : subjects_not_ordered(order, std::move(questions))) {
      const auto [before, after] = edges[edge];
      report(Kind::kMissingOrder, name(after) + " on " + text(order.stream[order.node_of[after.index()]]) +
                                      " may start before " + name(before) + " on " +
                                      text(order.stream[order.node_of[before.index()]]) + " has finished");
    }
  }

  // The host must be able to issue the tasks in launch order: each after all that the graph, its stream and
  // its waits put before it.
  void check_launch_order(const StepOrder& order) {
    std::vector<std::pair<TaskId, TaskId>> reversed;  // (after, before)
    auto check = [&](TaskId before, TaskId after) {
      const std::size_t early = place_in_launch_order_[before.index()],
                        late = place_in_launch_order_[after.index()];
      if (early != kNotLaunched && late != kNotLaunched && early >= late)
        reversed.emplace_back(after, before);
    };
    std::vector<std::optional<TaskId>> last_launched = order.task;  // for a join, of all that it joins
    for (Node node = 0; node < order.node_count(); ++node)
      for (Node before : order.directly_before(node)) {
        const std::optional<TaskId> earlier = last_launched[before];
        std::optional<TaskId>& mine = last_launched[node];
        if (!earlier) continue;
        if (order.task[node])
          check(*earlier, *order.task[node]);
        else if (!mine || place_in_launch_order_[earlier->index()] > place_in_launch_order_[mine->index()])
          mine = earlier;
      }
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t)
      for (TaskId before : graph_.predecessors(TaskId{t})) check(before, TaskId{t});

    std::ranges::sort(reversed);
    reversed.erase(std::unique(reversed.begin(), reversed.end()), reversed.end());
    for (const auto& [after, before] : reversed)
      report(Kind::kLaunchOrder,
             name(after) + " is launched before " + name(before) + ", which it comes after");
  }

  // Returns whether it makes sense to look for overlaps.
  bool check_places() {
    const MemoryPlan& memory = schedule_.memory;
    if (memory.offsets.size() != buffers_.size()) {
      report(Kind::kWrongShape, std::to_string(memory.offsets.size()) + " offsets for " +
                                    std::to_string(buffers_.size()) + " buffers");
      return false;
    }
    bool addresses_are_sane = true;
    for (std::uint32_t b = 0; b < buffers_.size(); ++b) {
      const BufferSpec& buffer = buffers_[b];
      const std::uint64_t offset = memory.offsets[b];
      for (TaskId task : buffer.uses)
        if (!known(task))
          report(Kind::kUnknownTask, "buffer " + name(BufferId{b}) + " is used by task " +
                                         std::to_string(task.value) + ", which the graph does not have");
      if (buffer.alignment == 0 || offset % buffer.alignment != 0)
        report(Kind::kMisaligned, "buffer " + name(BufferId{b}) + " lies at " + std::to_string(offset) +
                                      ", which is no multiple of " + std::to_string(buffer.alignment));
      if (offset > memory.arena_bytes || buffer.bytes > memory.arena_bytes - offset)
        report(Kind::kOutsideArena, "buffer " + name(BufferId{b}) + " (" + std::to_string(buffer.bytes) +
                                        " bytes at " + std::to_string(offset) +
                                        ") reaches beyond the arena of " +
                                        std::to_string(memory.arena_bytes) + " bytes");
      if (offset + buffer.bytes < offset) addresses_are_sane = false;
    }
    return addresses_are_sane;
  }

  void check_overlaps(const StepOrder& order) {
    for (const auto& [a, b] : memory_conflicts(order, buffers_, schedule_.memory.offsets))
      report(Kind::kOverlap, "buffers " + name(a) + " and " + name(b) + " share bytes from " +
                                 std::to_string(std::max(schedule_.memory.offsets[a.index()],
                                                         schedule_.memory.offsets[b.index()])) +
                                 " on and may be in use together");
  }

  static constexpr std::size_t kNotLaunched = static_cast<std::size_t>(-1);
  const TaskGraph& graph_;
  std::span<const BufferSpec> buffers_;
  const Schedule& schedule_;
  std::vector<std::size_t> place_in_launch_order_;  // by task
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> verify(const TaskGraph& graph, std::span<const BufferSpec> buffers,
                              const Schedule& schedule) {
  return Verifier(graph, buffers, schedule).run();
}

void verify_or_throw(const TaskGraph& graph, std::span<const BufferSpec> buffers, const Schedule& schedule) {
  const std::vector<Violation> violations = verify(graph, buffers, schedule);
  if (violations.empty()) return;
  constexpr std::size_t kShown = 3;
  std::string message = "[nimble::verify] the schedule is wrong";
  for (std::size_t i = 0; i < std::min(kShown, violations.size()); ++i)
    message += (i == 0 ? ": " : "; ") + violations[i].message;
  if (violations.size() > kShown) message += "; and " + std::to_string(violations.size() - kShown) + " more";
  throw Error(message);
}

}  // namespace nimble
