#include "nimble/core/step_walk.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

namespace nimble {
namespace {

class Walk {
 public:
  Walk(const Schedule& schedule, const std::function<void(StreamId, const Step&)>& visit)
      : schedule_(schedule), visit_(visit), next_step_(schedule.streams.size(), 0) {
    std::size_t steps = 0;
    for (const StreamProgram& program : schedule.streams) steps += program.size();
    // Ids are dense, so a larger event than there are steps is an error that must not cost memory.
    recorded_.resize(std::min(schedule.event_count, steps), false);
  }

  std::vector<StuckStream> run() {
    follow_launch_order();
    run_to_the_end();
    std::vector<StuckStream> stuck;
    for (std::uint32_t s = 0; s < next_step_.size(); ++s)
      if (next_step_[s] < program(s).size()) stuck.push_back({StreamId{s}, next_step_[s]});
    return stuck;
  }

 private:
  const StreamProgram& program(std::uint32_t stream) const { return schedule_.streams[stream]; }

  void follow_launch_order() {
    struct Place {
      std::uint32_t stream;
      std::size_t step;
    };
    std::vector<std::optional<Place>> place_of(schedule_.launch_order.size());
    for (std::uint32_t s = 0; s < schedule_.streams.size(); ++s)
      for (std::size_t i = 0; i < program(s).size(); ++i)
        if (const Run* run = std::get_if<Run>(&program(s)[i]);
            run && run->task.index() < place_of.size() && !place_of[run->task.index()])
          place_of[run->task.index()] = Place{s, i};
    for (TaskId task : schedule_.launch_order)
      if (task.index() < place_of.size())
        if (const auto& place = place_of[task.index()]) {
          advance(place->stream, place->step + 1);
          advance_over_records(place->stream);
        }
  }

  void run_to_the_end() {
    for (std::uint32_t s = 0; s < next_step_.size(); ++s) ready_.push_back(s);
    while (!ready_.empty()) {
      std::uint32_t stream = ready_.back();
      ready_.pop_back();
      advance(stream, program(stream).size());
      if (next_step_[stream] < program(stream).size())
        waiting_[std::get<WaitEvent>(program(stream)[next_step_[stream]]).event].push_back(stream);
    }
  }

  // Runs a stream's steps before `end`, or until it has to wait.
  void advance(std::uint32_t stream, std::size_t end) {
    for (std::size_t& i = next_step_[stream]; i < end; ++i) {
      const Step& step = program(stream)[i];
      if (const WaitEvent* wait = std::get_if<WaitEvent>(&step); wait && !is_recorded(wait->event)) return;
      visit_(StreamId{stream}, step);
      if (const RecordEvent* record = std::get_if<RecordEvent>(&step)) mark_recorded(record->event);
    }
  }

  void advance_over_records(std::uint32_t stream) {
    std::size_t end = next_step_[stream];
    while (end < program(stream).size() && std::holds_alternative<RecordEvent>(program(stream)[end])) ++end;
    advance(stream, end);
  }

  bool is_recorded(EventId event) const {
    return event.index() < recorded_.size() && recorded_[event.index()];
  }

  void mark_recorded(EventId event) {
    if (event.index() >= recorded_.size()) return;
    recorded_[event.index()] = true;
    if (auto waiting = waiting_.find(event); waiting != waiting_.end()) {
      ready_.insert(ready_.end(), waiting->second.begin(), waiting->second.end());
      waiting_.erase(waiting);
    }
  }

  const Schedule& schedule_;
  const std::function<void(StreamId, const Step&)>& visit_;
  std::vector<std::size_t> next_step_;  // by stream
  std::vector<bool> recorded_;          // by event
  std::vector<std::uint32_t> ready_;
  std::unordered_map<EventId, std::vector<std::uint32_t>> waiting_;
};

}  // namespace

std::vector<StuckStream> walk_steps(const Schedule& schedule,
                                    const std::function<void(StreamId, const Step&)>& visit) {
  return Walk(schedule, visit).run();
}

std::vector<Wait> waits_between_tasks(const Schedule& schedule) {
  std::vector<std::optional<TaskId>> last(schedule.streams.size());
  std::vector<std::vector<TaskId>> pending(schedule.streams.size());
  std::unordered_map<EventId, TaskId> recorded_after;
  std::vector<Wait> waits;
  walk_steps(schedule, [&](StreamId stream, const Step& step) {
    if (const Run* run = std::get_if<Run>(&step)) {
      for (TaskId before : std::exchange(pending[stream.index()], {})) waits.push_back({before, run->task});
      last[stream.index()] = run->task;
    } else if (const RecordEvent* record = std::get_if<RecordEvent>(&step)) {
      if (last[stream.index()]) recorded_after.try_emplace(record->event, *last[stream.index()]);
    } else if (auto before = recorded_after.find(std::get<WaitEvent>(step).event);
               before != recorded_after.end()) {
      pending[stream.index()].push_back(before->second);
    }
  });
  return waits;
}

}  // namespace nimble
