#include "nimble/core/memory_waits.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "nimble/core/error.h"
#include "nimble/core/memory/liveness.h"
#include "nimble/core/simulate.h"

namespace nimble {
namespace {

constexpr std::uint64_t kMuch = 100;  // a saving of one part in so many,
constexpr Nanoseconds kCheap = 200;   // for a loss of time of one in so many

std::vector<std::uint32_t> sorted_by(const memory::Liveness& liveness,
                                     std::uint32_t memory::Lifetime::*position) {
  std::vector<std::uint32_t> buffers(liveness.size());
  std::iota(buffers.begin(), buffers.end(), 0u);
  std::stable_sort(buffers.begin(), buffers.end(), [&](std::uint32_t a, std::uint32_t b) {
    return liveness[a].*position < liveness[b].*position;
  });
  return buffers;
}

// Every last use of `a` before every first use of `b`.
void order(const memory::Liveness& liveness, std::uint32_t a, std::uint32_t b, std::vector<Edge>& edges) {
  for (const TaskId before : liveness.last_uses(a)) {
    for (const TaskId after : liveness.first_uses(b)) edges.push_back({before, after});
  }
}

// Goes through the buffers in launch order, as if the tasks ran one after the other. A buffer that is out of
// use by then, but not certainly so, keeps its memory from whatever is made next; where that is more than
// there is room for, somebody waits for the largest of these.
class WaitFinder {
 public:
  WaitFinder(const memory::Liveness& liveness, const Simulation& simulation, std::uint64_t room)
      : liveness_(liveness), live_(liveness.bytes_live()), simulation_(simulation), room_(room) {}

  // None where memory is short in so many places that it would take more than a few.
  std::vector<Edge> find() {
    constexpr std::size_t kLooks = 300;  // at a buffer, on average
    const auto by_last = sorted_by(liveness_, &memory::Lifetime::last);
    auto ends = by_last.begin();
    std::size_t looks = 0;
    for (const std::uint32_t made : sorted_by(liveness_, &memory::Lifetime::first)) {
      const std::uint32_t now = liveness_[made].first;
      for (; ends != by_last.end() && liveness_[*ends].last < now; ++ends) {
        gone_.push_back(*ends);
        gone_bytes_ += liveness_[*ends].bytes;
      }
      if (live_[now] + gone_bytes_ <= room_) continue;
      looks += gone_.size();
      if (looks > kLooks * liveness_.size()) return {};
      make_room_for(made);
    }
    return std::move(waits_);
  }

 private:
  void make_room_for(std::uint32_t made) {
    const std::uint32_t now = liveness_[made].first;
    const auto bytes_of = [&](const std::vector<std::uint32_t>& buffers) {
      return std::accumulate(buffers.begin(), buffers.end(), std::uint64_t{0},
                             [&](std::uint64_t sum, std::uint32_t b) { return sum + liveness_[b].bytes; });
    };
    std::erase_if(gone_, [&](std::uint32_t b) { return liveness_[b].free_from <= now; });
    gone_bytes_ = bytes_of(gone_);
    std::vector<std::uint32_t> in_the_way;
    std::copy_if(gone_.begin(), gone_.end(), std::back_inserter(in_the_way),
                 [&](std::uint32_t b) { return !liveness_.before(b, made); });
    std::stable_sort(in_the_way.begin(), in_the_way.end(), [&](std::uint32_t a, std::uint32_t b) {
      return liveness_[a].bytes > liveness_[b].bytes;
    });
    std::uint64_t taken = live_[now] + bytes_of(in_the_way);
    for (const std::uint32_t b : in_the_way) {
      if (taken <= room_) return;
      if (!wait_for(b, made)) continue;
      taken -= liveness_[b].bytes;
      gone_bytes_ -= liveness_[b].bytes;
      std::erase(gone_, b);  // what is made later mostly comes after this
    }
  }

  // False if that would delay somebody by much.
  bool wait_for(std::uint32_t gone, std::uint32_t made) {
    for (const TaskId before : liveness_.last_uses(gone)) {
      for (const TaskId after : liveness_.first_uses(made)) {
        if (end_of(before) - start_of(after) > simulation_.total / kCheap) return false;
      }
    }
    order(liveness_, gone, made, waits_);
    return true;
  }
  Nanoseconds start_of(TaskId task) const { return simulation_.tasks[task.index()].start; }
  Nanoseconds end_of(TaskId task) const { return simulation_.tasks[task.index()].end; }

  const memory::Liveness& liveness_;
  std::vector<std::uint64_t> live_;  // by position
  const Simulation& simulation_;
  std::uint64_t room_;
  std::vector<std::uint32_t> gone_;
  std::uint64_t gone_bytes_ = 0;
  std::vector<Edge> waits_;
};

// Who has to wait for whom because they lie in the same bytes. It is enough to wait for whoever had them
// last.
std::vector<Edge> orders_of(const MemoryPlan& memory, const memory::Liveness& liveness) {
  struct Occupied {
    std::uint64_t end;
    std::uint32_t by;
  };
  std::map<std::uint64_t, Occupied> arena;  // by where it begins
  std::vector<Edge> edges;
  for (const std::uint32_t b : sorted_by(liveness, &memory::Lifetime::first)) {
    const std::uint64_t begin = memory.offsets[b], end = begin + liveness[b].bytes;
    if (begin == end) continue;
    auto first = arena.upper_bound(begin);
    if (first != arena.begin() && std::prev(first)->second.end > begin) --first;
    auto past = first;
    for (; past != arena.end() && past->first < end; ++past) {
      if (!liveness.before(past->second.by, b)) order(liveness, past->second.by, b, edges);
    }
    // What is left of them on either side stays theirs.
    if (first != past) {
      const auto [left, left_by] = *first;
      const Occupied right = std::prev(past)->second;
      arena.erase(first, past);
      if (left < begin) arena[left] = {begin, left_by.by};
      if (right.end > end) arena[end] = right;
    }
    arena[begin] = {end, b};
  }
  return edges;
}

Schedule with_further_edges(const TaskGraph& graph, std::vector<Edge> edges, const Schedule& schedule) {
  for (const TaskId task : graph.topological_order()) {
    for (const TaskId after : graph.successors(task)) edges.push_back({task, after});
  }
  return make_schedule(graph.with_edges(edges),
                       {schedule.stream_of(), schedule.streams.size(), schedule.launch_order});
}

// None where the costs add up to more than any clock shows.
std::optional<Simulation> simulated(const TaskGraph& graph, const Schedule& schedule) {
  try {
    return simulate(graph, schedule);
  } catch (const InvalidInput&) {
    return std::nullopt;
  }
}

}  // namespace

Schedule with_waits_for_memory(const TaskGraph& graph, std::span<const BufferSpec> buffers, Schedule schedule,
                               std::uint64_t worthwhile) {
  const std::uint64_t least = std::max(worthwhile, schedule.memory.arena_bytes / kMuch);
  const auto saves = [&](std::uint64_t bytes) { return bytes + least < schedule.memory.arena_bytes; };
  if (!saves(schedule.memory.lower_bound)) return schedule;
  const auto before = simulated(graph, schedule);
  if (!before) return schedule;
  // Without waits that it has for other buffers' sake: those do not stay.
  const Schedule bare = with_further_edges(graph, {}, schedule);
  const memory::Liveness liveness(buffers, happens_before_graph(graph, bare), bare.launch_order);
  std::vector<Edge> proposed = WaitFinder(liveness, *before, schedule.memory.lower_bound).find();
  if (proposed.empty()) return schedule;
  Schedule waiting = with_further_edges(graph, std::move(proposed), bare);
  MemoryPlan memory = plan_memory(buffers, happens_before_graph(graph, waiting), waiting.launch_order);
  if (!saves(memory.arena_bytes)) return schedule;
  // Of what was proposed, the plan may have made no use.
  waiting = with_further_edges(graph, orders_of(memory, liveness), bare);
  waiting.memory = std::move(memory);
  const auto after = simulated(graph, waiting);
  return after && after->total - before->total <= before->total / kCheap ? waiting : schedule;
}

}  // namespace nimble
