#include "nimble/engine/choose.h"

#include <algorithm>
#include <chrono>

#include "nimble/core/degree_of_concurrency.h"
#include "nimble/engine/known_replays.h"
#include "nimble/engine/rival_schedules.h"
#include "nimble/torch/record_error.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

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
                       const OutsideState& before, const CompileOptions& options, bool owns_escaped,
                       std::shared_ptr<KnownTimes> known_times) {
  const auto start = Clock::now();
  Backend& backend = backend_for(program->device());
  CandidateMaker maker(program, inputs, options, backend);

  Choice choice;
  choice.tasks = maker.graph().task_count();
  choice.edges = maker.graph().edge_count();
  choice.degree_of_concurrency = degree_of_concurrency(maker.graph());
  choice.allocated_bytes = maker.memory().total_bytes;

  RivalSchedules rivals(options.streams ? std::vector{StreamLimit{*options.streams}}
                                        : backend.stream_choices(choice.degree_of_concurrency),
                        program, inputs, before, maker);
  choice.plan_milliseconds = milliseconds_since(start);
  if (rivals.count() > 1) {
    const auto tuning = Clock::now();
    const bool is_usual = options.graph && options.share_memory;  // what is looked at otherwise is not kept
    KnownReplays known(is_usual ? std::move(known_times) : nullptr, *program);
    choice.remembered = rivals.remember(known);
    if (!choice.remembered) rivals.measure(options.tune_seconds, known);
    choice.tune_milliseconds = milliseconds_since(tuning);
  }
  choice.tried = rivals.tried();
  Candidate best = rivals.take_fastest();
  choice.streams = best.streams;
  choice.syncs = best.syncs;
  choice.executable = std::move(best.executable);
  const bool moves_in = owns_escaped && options.share_memory && leaves_anything_outside(*program);
  if (moves_in || choice.executable->report().spare_bytes > 0) {
    choice.executable = bind_alone(std::move(choice.executable), rivals.others(), maker, moves_in);
    choice.allocated_bytes = choice.executable->plan().memory.total_bytes;
  }
  return choice;
}

}  // namespace nimble
