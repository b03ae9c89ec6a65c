#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "nimble/core/schedule.h"

// What is wrong with a schedule, found the slow and obvious way: the full order relation over all steps, and
// all pairs of buffers. `verify` is tested against it.
namespace nimble::testing {

struct Verdict {
  bool well_formed =
      true;  // every task once in the streams and in the launch order, events known and recorded once
  bool deadlock = false;
  std::set<std::pair<TaskId, TaskId>> missing_order;
  std::set<std::pair<BufferId, BufferId>> overlaps;
  bool launch_order_is_possible = true;
  bool buffers_in_place = true;  // aligned, inside the arena

  bool right() const {
    return well_formed && !deadlock && missing_order.empty() && overlaps.empty() &&
           launch_order_is_possible && buffers_in_place;
  }
};

class ScheduleOracle {
 public:
  ScheduleOracle(const TaskGraph& graph, const Schedule& schedule) : graph_(graph), schedule_(schedule) {
    for (const StreamProgram& program : schedule.streams)
      for (std::size_t i = 0; i < program.size(); ++i) {
        previous_.push_back(i > 0 ? std::optional(steps_.size() - 1) : std::nullopt);
        steps_.push_back(program[i]);
      }
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (auto* run = std::get_if<Run>(&steps_[s])) runs_[run->task].push_back(s);
      if (auto* record = std::get_if<RecordEvent>(&steps_[s])) records_[record->event].push_back(s);
    }
    step_of_.resize(graph.task_count());
    for (const auto& [task, places] : runs_)
      if (task.index() < step_of_.size()) step_of_[task.index()] = places.front();
    order_steps();
  }

  // All steps in an order in which they could run; shorter than the schedule if it deadlocks.
  const std::vector<std::size_t>& possible_order() const { return possible_order_; }
  std::vector<TaskId> possible_launch_order() const {
    std::vector<TaskId> tasks;
    for (std::size_t s : possible_order_)
      if (auto* run = std::get_if<Run>(&steps_[s])) tasks.push_back(run->task);
    return tasks;
  }

  Verdict judge(std::span<const BufferSpec> buffers) const {
    Verdict verdict;
    verdict.well_formed = well_formed() && schedule_.memory.offsets.size() == buffers.size();
    verdict.deadlock = possible_order_.size() != steps_.size();
    if (!verdict.well_formed || verdict.deadlock) return verdict;

    std::vector<std::size_t> launched_at(graph_.task_count());
    for (std::size_t i = 0; i < schedule_.launch_order.size(); ++i)
      launched_at[schedule_.launch_order[i].index()] = i;
    for (std::uint32_t u = 0; u < graph_.task_count(); ++u) {
      for (TaskId v : graph_.successors(TaskId{u})) {
        if (!before(TaskId{u}, v)) verdict.missing_order.emplace(TaskId{u}, v);
        if (launched_at[u] > launched_at[v.index()]) verdict.launch_order_is_possible = false;
      }
      for (std::uint32_t v = 0; v < graph_.task_count(); ++v)
        if (launched_at[u] > launched_at[v] && before(TaskId{u}, TaskId{v}))
          verdict.launch_order_is_possible = false;
    }

    const auto& [offsets, arena, lower_bound] = schedule_.memory;
    auto all_before = [&](const BufferSpec& a, const BufferSpec& b) {
      return std::ranges::all_of(a.uses, [&](TaskId u) {
        return std::ranges::all_of(b.uses, [&](TaskId v) { return before(u, v); });
      });
    };
    for (std::uint32_t a = 0; a < buffers.size(); ++a) {
      if (offsets[a] % buffers[a].alignment != 0 || offsets[a] + buffers[a].bytes > arena)
        verdict.buffers_in_place = false;
      for (std::uint32_t b = a + 1; b < buffers.size(); ++b) {
        const bool share = std::max(offsets[a], offsets[b]) <
                           std::min(offsets[a] + buffers[a].bytes, offsets[b] + buffers[b].bytes);
        if (share && !all_before(buffers[a], buffers[b]) && !all_before(buffers[b], buffers[a]))
          verdict.overlaps.emplace(BufferId{a}, BufferId{b});
      }
    }
    return verdict;
  }

 private:
  bool well_formed() const {
    std::vector<TaskId> launched = schedule_.launch_order;
    std::ranges::sort(launched);
    if (launched.size() != graph_.task_count() || runs_.size() != graph_.task_count()) return false;
    for (std::uint32_t t = 0; t < graph_.task_count(); ++t)
      if (launched[t] != TaskId{t} || !runs_.contains(TaskId{t})) return false;
    for (const auto& [task, places] : runs_)
      if (places.size() != 1) return false;
    for (const auto& [event, places] : records_)
      if (places.size() != 1 || event.index() >= schedule_.event_count) return false;
    return true;
  }

  std::vector<std::size_t> directly_before(std::size_t s) const {
    std::vector<std::size_t> before;
    if (previous_[s]) before.push_back(*previous_[s]);
    if (auto* wait = std::get_if<WaitEvent>(&steps_[s]))
      if (auto record = records_.find(wait->event); record != records_.end())
        before.push_back(record->second.front());
    return before;
  }

  bool can_never_run(std::size_t s) const {
    auto* wait = std::get_if<WaitEvent>(&steps_[s]);
    return wait && !records_.contains(wait->event);
  }

  void order_steps() {
    const std::size_t words = (steps_.size() + 63) / 64;
    ancestors_.assign(steps_.size(), std::vector<std::uint64_t>(words, 0));
    std::vector<std::size_t> missing(steps_.size(), 0);
    std::vector<std::vector<std::size_t>> next(steps_.size());
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      for (std::size_t p : directly_before(s)) {
        next[p].push_back(s);
        ++missing[s];
      }
      if (can_never_run(s)) ++missing[s];
      if (missing[s] == 0) possible_order_.push_back(s);
    }
    for (std::size_t i = 0; i < possible_order_.size(); ++i)
      for (std::size_t s = possible_order_[i]; std::size_t n : next[s]) {
        for (std::size_t w = 0; w < words; ++w) ancestors_[n][w] |= ancestors_[s][w];
        ancestors_[n][s / 64] |= std::uint64_t{1} << s % 64;
        if (--missing[n] == 0) possible_order_.push_back(n);
      }
  }

  bool before(TaskId a, TaskId b) const {
    const std::size_t s = step_of_[a.index()];
    return ancestors_[step_of_[b.index()]][s / 64] >> s % 64 & 1;
  }

  const TaskGraph& graph_;
  const Schedule& schedule_;
  std::vector<Step> steps_;                           // of all streams
  std::vector<std::optional<std::size_t>> previous_;  // by step: the one before it on its stream
  std::map<TaskId, std::vector<std::size_t>> runs_;
  std::map<EventId, std::vector<std::size_t>> records_;
  std::vector<std::size_t> step_of_;                   // by task, where it runs
  std::vector<std::vector<std::uint64_t>> ancestors_;  // by step, a bit for each step
  std::vector<std::size_t> possible_order_;
};

}  // namespace nimble::testing
