#include "nimble/engine/choose.h"

#include <algorithm>
#include <chrono>

#include "nimble/core/degree_of_concurrency.h"
#include "nimble/engine/candidates.h"
#include "nimble/engine/effects.h"
#include "nimble/engine/time_in_turn.h"
#include "nimble/torch/record_error.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// CUDA takes a megabyte for each stream of a graph, and never gives it back. A step of training has hundreds
// of tasks that could run side by side, and of all networks that were measured none was fastest on more than
// eight streams.
constexpr std::size_t kMostStreams = 128;

bool leaves_anything_outside(const Program& program) {
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [](const Buffer& buffer) { return buffer.kind == BufferKind::kEscaped; });
}

// The chosen one in memory of its own size. The others go only when it has that, or where there is no room
// for all: PyTorch would put it into what they leave, and keep all of that.
std::unique_ptr<Executable> bind_alone(std::unique_ptr<Executable> chosen, std::vector<Candidate>& others,
                                       const CandidateMaker& maker, bool moves_in) {
  const Schedule schedule = chosen->plan().schedule;
  const auto bind = [&](const Executable* same) {
    return moves_in ? maker.bind_for_good(schedule, same) : maker.bind(schedule, same);
  };
  try {
    return bind(chosen.get()).executable;
  } catch (const RecordError&) {
    throw;
  } catch (const std::exception&) {  // no memory, most likely
    if (!moves_in) return chosen;
    others.clear();
    chosen.reset();
    return bind(nullptr).executable;
  }
}

}  // namespace

Choice choose_schedule(const std::shared_ptr<const Program>& program, std::span<const at::Tensor> inputs,
                       const OutsideState& before, const CompileOptions& options, bool owns_escaped) {
  const auto start = Clock::now();
  Backend& backend = backend_for(program->device());
  CandidateMaker maker(program, inputs, options, backend);

  Choice choice;
  choice.tasks = maker.graph().task_count();
  choice.edges = maker.graph().edge_count();
  choice.degree_of_concurrency = degree_of_concurrency(maker.graph());
  choice.allocated_bytes = maker.memory().total_bytes;

  const auto limits = options.streams ? std::vector{StreamLimit{*options.streams}}
                                      : backend.stream_choices(choice.degree_of_concurrency);
  std::vector<Candidate> candidates;
  candidates.push_back(maker.bind(maker.plan(limits.front())));
  choice.plan_milliseconds = milliseconds_since(start);

  if (limits.size() > 1) {
    const auto tuning = Clock::now();
    Executable& safe = *candidates.front().executable;
    const auto effects_of = [&](Executable& executable) {
      return Effects::observe(replay_from(before, executable, inputs), before);
    };
    const auto on_one_stream = [&] { return effects_of(safe); };
    const Effects expected = on_one_stream();
    auto spread = measure_spread(program->device(), expected, on_one_stream);
    maker.know_costs(safe.measure_tasks(inputs));
    std::vector<Schedule> schedules;
    for (const StreamLimit limit : std::span(limits).subspan(1)) {
      Schedule schedule = maker.plan(limit);
      if (program->device().is_cuda() && schedule.streams.size() > kMostStreams) {
        choice.tried.push_back(
            {schedule.streams.size(), 0, 0, "too many for the memory that CUDA would keep"});
        continue;
      }
      // With more streams than it has a use for, a program gets the same schedule again.
      if (std::ranges::find(schedules, schedule) == schedules.end()) schedules.push_back(std::move(schedule));
    }
    // Kernels may split their sums by the number of threads; a schedule that changes a bit is no candidate.
    // (On a GPU some kernels do not repeat their own bits; a candidate may vary as much as one stream does.)
    auto others = maker.bind_all(std::move(schedules), safe, [&](Candidate& candidate) -> std::string {
      const auto differs = unexplained_difference(effects_of(*candidate.executable), expected, spread,
                                                  program->device(), on_one_stream);
      if (!differs) return "";
      return "other bits" +
             (differs->excess.empty() ? "" : ": " + differs->name + " differs " + differs->excess);
    });
    before.restore();
    for (Candidate& candidate : others) {
      if (candidate.rejected.empty()) {
        candidates.push_back(std::move(candidate));
      } else {
        const std::size_t threads =
            candidate.executable ? candidate.executable->report().threads_per_stream : 0;
        choice.tried.push_back({candidate.streams, threads, 0, candidate.rejected});
      }
    }
    others.clear();
    if (candidates.size() > 1) {
      constexpr std::size_t kMostRounds = 50;
      std::vector<Executable*> executables;
      for (const Candidate& candidate : candidates) executables.push_back(candidate.executable.get());
      // What making the candidates took is part of the time that may be spent, but the choice itself gets
      // half.
      const double left = options.tune_seconds - milliseconds_since(tuning) / 1e3;
      auto times = time_in_turn(executables, inputs, std::max(left, options.tune_seconds / 2), kMostRounds);
      for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].times = std::move(times[i]);
    }
    choice.tune_milliseconds = milliseconds_since(tuning);
  }

  // From the fewest streams to the most: more need more memory, so they must be faster by more than the
  // noise.
  constexpr double kFaster = 0.99;
  std::size_t best = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[i];
    const bool timed = !candidate.times.empty();
    choice.tried.push_back({candidate.streams, candidate.executable->report().threads_per_stream,
                            timed ? candidate.median() : 0, ""});
    if (timed && candidate.median() < kFaster * candidates[best].median()) best = i;
  }
  choice.streams = candidates[best].streams;
  choice.syncs = candidates[best].syncs;
  choice.executable = std::move(candidates[best].executable);
  const bool moves_in = owns_escaped && options.share_memory && leaves_anything_outside(*program);
  if (moves_in || choice.executable->report().spare_bytes > 0) {
    choice.executable = bind_alone(std::move(choice.executable), candidates, maker, moves_in);
    choice.allocated_bytes = choice.executable->plan().memory.total_bytes;
  }
  return choice;
}

}  // namespace nimble
