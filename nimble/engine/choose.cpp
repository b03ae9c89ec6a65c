#include "nimble/engine/choose.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>

#include "nimble/core/degree_of_concurrency.h"
#include "nimble/core/verify.h"
#include "nimble/engine/effects.h"
#include "nimble/engine/time_in_turn.h"
#include "nimble/torch/dependencies.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Candidate {
  std::unique_ptr<Executable> executable;
  std::size_t streams = 0, syncs = 0;
  std::vector<double> times;

  double median() {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }
};

Candidate make_candidate(const std::shared_ptr<const Program>& program, const TaskGraph& graph,
                         const MemoryDemand& memory, StreamLimit limit, std::span<const at::Tensor> inputs,
                         const CompileOptions& options, Backend& backend,
                         const Executable* same_program = nullptr) {
  Schedule schedule = plan(graph, memory.specs, limit);
  if (!options.share_memory) schedule.memory = place_apart(memory.specs);
  verify_or_throw(graph, memory.specs, schedule);
  Candidate candidate{
      .executable = nullptr, .streams = schedule.streams.size(), .syncs = schedule.wait_count(), .times = {}};
  BindOptions bind{.alias_outputs = options.alias_outputs,
                   .example_inputs = Tensors(inputs.begin(), inputs.end()),
                   .same_program = same_program};
  bind.threads_per_stream =
      std::max(1, at::get_num_threads() / static_cast<int>(std::max<std::size_t>(1, candidate.streams)));
  candidate.executable = backend.bind({program, graph, memory, std::move(schedule)}, bind);
  return candidate;
}

}  // namespace

Choice choose_schedule(const std::shared_ptr<const Program>& program, std::span<const at::Tensor> inputs,
                       const OutsideState& before, const CompileOptions& options) {
  const auto start = Clock::now();
  Backend& backend = backend_for(program->device());
  const MemoryDemand memory = memory_demand(*program, backend.alignment());
  TaskGraph graph = dependencies(*program);

  Choice choice;
  choice.tasks = graph.task_count();
  choice.edges = graph.edge_count();
  choice.degree_of_concurrency = degree_of_concurrency(graph);
  choice.allocated_bytes = memory.total_bytes;

  auto limits = options.streams ? std::vector{StreamLimit{*options.streams}}
                                : backend.stream_choices(choice.degree_of_concurrency);
  std::vector<Candidate> candidates;
  candidates.push_back(make_candidate(program, graph, memory, limits.front(), inputs, options, backend));
  choice.plan_milliseconds = milliseconds_since(start);

  if (limits.size() > 1) {
    const auto tuning = Clock::now();
    Executable& safe = *candidates.front().executable;
    const auto effects_of = [&](Executable& executable) {
      return Effects::observe(replay_from(before, executable, inputs), before);
    };
    const auto on_one_stream = [&] { return effects_of(safe); };
    const Effects expected = on_one_stream();
    auto spread = measure_spread(program->device(), on_one_stream);
    graph = dependencies(*program, safe.measure_tasks(inputs));
    for (const StreamLimit limit : std::span(limits).subspan(1)) {
      Candidate candidate;
      try {
        candidate = make_candidate(program, graph, memory, limit, inputs, options, backend, &safe);
      } catch (const c10::OutOfMemoryError&) {  // what fits can still be replayed
        choice.tried.push_back({limit.count, 0, 0, "out of memory"});
        continue;
      }
      // Kernels may split their sums by the number of threads; a schedule that changes a bit is no candidate.
      // (On a GPU some kernels do not repeat their own bits; a candidate may vary as much as one stream
      // does.)
      const auto differs = unexplained_difference(effects_of(*candidate.executable), expected, spread,
                                                  program->device(), on_one_stream);
      if (differs) {
        const std::string excess =
            differs->excess.empty() ? "" : ": " + differs->name + " differs " + differs->excess;
        choice.tried.push_back(
            {candidate.streams, candidate.executable->report().threads_per_stream, 0, "other bits" + excess});
      } else {
        candidates.push_back(std::move(candidate));
      }
    }
    before.restore();
    if (candidates.size() > 1) {
      constexpr std::size_t kMostRounds = 50;
      std::vector<Executable*> executables;
      for (const Candidate& candidate : candidates) executables.push_back(candidate.executable.get());
      auto times = time_in_turn(executables, inputs, options.tune_seconds, kMostRounds);
      for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].times = std::move(times[i]);
    }
    choice.tune_milliseconds = milliseconds_since(tuning);
  }

  // From the fewest streams to the most: more need more memory, so they must be faster by more than the
  // noise.
  constexpr double kFaster = 0.99;
  Candidate* best = &candidates.front();
  for (Candidate& candidate : candidates) {
    const bool timed = !candidate.times.empty();
    choice.tried.push_back({candidate.streams, candidate.executable->report().threads_per_stream,
                            timed ? candidate.median() : 0, ""});
    if (timed && candidate.median() < kFaster * best->median()) best = &candidate;
  }
  choice.streams = best->streams;
  choice.syncs = best->syncs;
  choice.executable = std::move(best->executable);
  return choice;
}

}  // namespace nimble
