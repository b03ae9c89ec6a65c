#include "nimble/engine/rival_schedules.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "nimble/engine/time_in_turn.h"

namespace nimble {
namespace {

// CUDA takes a megabyte for each stream of a graph, and never gives it back. A step of training has hundreds
// of tasks that could run side by side, and of all networks that were measured none was fastest on more than
// eight streams.
constexpr std::size_t kMostStreams = 128;
constexpr const char* kTooManyStreams = "too many for the memory that CUDA would keep";

// The number of the fastest candidate; those of 0 ms are none, the first always is one. From the fewest
// streams to the most: more need more memory, so they must be faster by more than the noise.
std::size_t fastest(std::span<const double> milliseconds) {
  constexpr double kFaster = 0.99;
  std::size_t best = 0;
  for (std::size_t i = 1; i < milliseconds.size(); ++i) {
    if (milliseconds[i] > 0 && milliseconds[i] < kFaster * milliseconds[best]) best = i;
  }
  return best;
}

}  // namespace

RivalSchedules::RivalSchedules(std::vector<StreamLimit> limits, const std::shared_ptr<const Program>& program,
                               std::span<const at::Tensor> inputs, const OutsideState& before,
                               CandidateMaker& maker)
    : limits_(std::move(limits)),
      program_(program),
      inputs_(inputs),
      before_(before),
      maker_(maker),
      candidates_(limits_.size()) {
  candidates_.front() = maker.bind(maker.plan(limits_.front()));
}

bool RivalSchedules::is_candidate(std::size_t i) const {
  return candidates_[i].executable && candidates_[i].rejected.empty();
}

bool RivalSchedules::remember(const KnownReplays& known) {
  const auto replays = known.within(limits_);
  if (!replays) return false;
  std::vector<double> milliseconds;
  for (const auto& replay : *replays) milliseconds.push_back(replay.milliseconds);
  const std::size_t best = fastest(milliseconds);
  if (best > 0) {
    look_at_first();
    bind({best});
    if (!is_candidate(best)) return false;
  }
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    if (!candidates_[i].executable) candidates_[i].streams = (*replays)[i].streams;
    if (milliseconds[i] > 0) candidates_[i].times = {milliseconds[i]};
  }
  return true;
}

void RivalSchedules::measure(double seconds, KnownReplays& known) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kMostRounds = 50;
  const auto start = Clock::now();
  look_at_first();
  std::vector<std::size_t> others(limits_.size() - 1);
  std::iota(others.begin(), others.end(), std::size_t{1});
  bind(others);
  std::vector<std::size_t> timed;
  std::vector<Executable*> executables;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (!is_candidate(i)) continue;
    timed.push_back(i);
    executables.push_back(candidates_[i].executable.get());
  }
  if (timed.size() > 1) {
    const double left = seconds - std::chrono::duration<double>(Clock::now() - start).count();
    auto times = time_in_turn(executables, inputs_, std::max(left, seconds / 2), kMostRounds);
    for (std::size_t n = 0; n < timed.size(); ++n) candidates_[timed[n]].times = std::move(times[n]);
  }
  const std::vector<double> milliseconds = medians();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    // Another process may have the memory that this one had not, or other luck with kernels that vary.
    if (!candidates_[i].rejected.empty() && candidates_[i].rejected != kTooManyStreams) continue;
    known.add(limits_[i], {candidates_[i].streams, milliseconds[i]});
  }
}

std::vector<Tried> RivalSchedules::tried() const {
  const std::vector<double> milliseconds = medians();
  std::vector<Tried> tried;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (candidate.streams == 0) continue;  // its schedule is the same as another
    tried.push_back({candidate.streams, candidate.threads_per_stream, milliseconds[i], candidate.rejected});
  }
  return tried;
}

std::vector<double> RivalSchedules::medians() const {
  std::vector<double> medians;
  for (const Candidate& candidate : candidates_) {
    medians.push_back(candidate.times.empty() ? 0 : candidate.median());
  }
  return medians;
}

Candidate RivalSchedules::take_fastest() {
  expected_.reset();  // copies of all that the program changes: nobody needs them any more
  spread_.reset();
  return std::move(candidates_[fastest(medians())]);
}

// What the others are planned by and compared with; once.
void RivalSchedules::look_at_first() {
  if (expected_) return;
  Executable& first = *candidates_.front().executable;
  expected_ = effects_of(first);
  spread_ = measure_spread(program_->device(), *expected_, [&] { return effects_of(first); });
  maker_.know_costs(first.measure_tasks(inputs_));
}

void RivalSchedules::bind(const std::vector<std::size_t>& which) {
  std::vector<Schedule> schedules;
  std::vector<std::size_t> bound;
  for (const std::size_t i : which) {
    Schedule schedule = maker_.plan(limits_[i]);
    if (program_->device().is_cuda() && schedule.streams.size() > kMostStreams) {
      candidates_[i].streams = schedule.streams.size();
      candidates_[i].rejected = kTooManyStreams;
      continue;
    }
    // With more streams than it has a use for, a program gets the same schedule again.
    if (std::ranges::find(schedules, schedule) != schedules.end()) continue;
    schedules.push_back(std::move(schedule));
    bound.push_back(i);
  }
  auto made = maker_.bind_all(std::move(schedules), *candidates_.front().executable,
                              [&](Candidate& candidate) { return why_not(candidate); });
  before_.restore();
  for (std::size_t n = 0; n < bound.size(); ++n) {
    if (!made[n].rejected.empty()) made[n].executable.reset();
    candidates_[bound[n]] = std::move(made[n]);
  }
}

// Kernels may split their sums by the number of threads; a schedule that changes a bit is no candidate. (On a
// GPU some kernels do not repeat their own bits; a candidate may vary as much as one stream does.)
std::string RivalSchedules::why_not(Candidate& candidate) {
  const auto on_one_stream = [&] { return effects_of(*candidates_.front().executable); };
  const auto differs = unexplained_difference(effects_of(*candidate.executable), *expected_, spread_,
                                              program_->device(), on_one_stream);
  if (!differs) return "";
  return "other bits" + (differs->excess.empty() ? "" : ": " + differs->name + " differs " + differs->excess);
}

Effects RivalSchedules::effects_of(Executable& executable) const {
  return Effects::observe(replay_from(before_, executable, inputs_), before_);
}

}  // namespace nimble
