#include "nimble/engine/kernels_in_schedule.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "nimble/core/error.h"
#include "nimble/core/median.h"
#include "nimble/engine/candidates.h"
#include "nimble/engine/measure_alone.h"
#include "nimble/engine/time_in_turn.h"
#include "nimble/torch/rewrites/coming_kernels.h"
#include "nimble/torch/rewrites/cuda/other_kernels.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;
using SharedProgram = std::shared_ptr<const Program>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The order that the schedule keeps, with the time that each task takes.
TaskGraph order_of(Executable& executable, std::span<const at::Tensor> inputs) {
  const ExecutionPlan& plan = executable.plan();
  const bool has_costs = plan.graph.task_count() > 0 && plan.graph.cost(TaskId{0});
  return happens_before_graph(
      has_costs ? plan.graph : dependencies(*plan.program, executable.measure_tasks(inputs)), plan.schedule);
}

std::vector<TensorRef> results_of(const Task& task) {
  std::vector<TensorRef> refs;
  for (const Operand& result : task.results) {
    for_each_ref(result, [&](const TensorRef& ref) { refs.push_back(ref); });
  }
  return refs;
}

bool allocates_as(const Task& a, const Task& b) {
  return std::ranges::equal(a.allocations, b.allocations, {}, &Allocation::bytes, &Allocation::bytes);
}

// Whether the kernel of an exchange can take the place of the one that each of its tasks has, in a memory
// plan. Running it also makes libraries get it ready.
bool fits_in_place(const Exchange& exchange, const Program& program) {
  const Task& task = program.task(exchange.tasks.front());
  const bool alike = std::ranges::all_of(
      exchange.tasks, [&](TaskId other) { return allocates_as(program.task(other), task); });
  if (!alike) return false;
  try {
    const Program alone = record_alone(program.buffers, {&exchange.by.front(), 1});
    return alone.tasks.size() == 1 && allocates_as(alone.tasks[0], task) &&
           std::ranges::equal(results_of(alone.tasks[0]), results_of(task), same_form);
  } catch (const Error&) {  // there is no such kernel
    return false;
  }
}

// Programs that differ in kernels alone, bound to the schedule of the first and lying in its memory: they run
// one at a time.
class Rivals {
 public:
  Rivals(const Executable& first, std::span<const at::Tensor> inputs, const CompileOptions& options)
      : first_(first),
        inputs_(inputs),
        options_(options),
        backend_(backend_for(program_of(first)->device())) {}

  Executable& of(const SharedProgram& program) {
    auto known = std::ranges::find(bound_, program, &Bound::program);
    if (known == bound_.end()) {
      known = bound_.insert(bound_.end(), {program, bind(program)});
    }
    return *known->executable;
  }

  // Lets go of all others.
  void keep(const SharedProgram& a, const SharedProgram& b) {
    std::erase_if(bound_, [&](const Bound& bound) { return bound.program != a && bound.program != b; });
  }

  std::unique_ptr<Executable> take(const SharedProgram& program) {
    of(program);
    return std::move(std::ranges::find(bound_, program, &Bound::program)->executable);
  }

 private:
  struct Bound {
    SharedProgram program;
    std::unique_ptr<Executable> executable;
  };

  static const SharedProgram& program_of(const Executable& executable) { return executable.plan().program; }

  // Warmed up as a whole: what would be loaded or chosen only in a capture may make it fail.
  std::unique_ptr<Executable> bind(const SharedProgram& program) const {
    const CandidateMaker maker(program, inputs_, options_, backend_);
    return maker.bind(first_.plan().schedule, /*same_program=*/nullptr, /*memory_of=*/&first_).executable;
  }

  const Executable& first_;
  std::span<const at::Tensor> inputs_;
  const CompileOptions& options_;
  Backend& backend_;
  std::vector<Bound> bound_;
};

// Many at once, before anything is timed.
void compile_kernels_of(std::span<const Exchange> exchanges, const KnownExchanges& known,
                        c10::Device device) {
  std::vector<Task> tasks;
  for (const Exchange& exchange : exchanges) {
    const auto times = known.find(exchange);
    if (!times || times->faster()) tasks.push_back(exchange.by.front());
  }
  compile_kernels_ahead(tasks, device).reset();
}

}  // namespace

void choose_kernels_in_schedule(Rewriting& rewriting, Choice& choice, std::span<const at::Tensor> inputs,
                                const CompileOptions& options, std::shared_ptr<KnownTimes> known_times) {
  constexpr std::size_t kKinds = 8;
  constexpr std::size_t kRounds = 20, kRoundsAgain = 60;  // where replays take no longer than there is time
  const auto start = Clock::now();
  const SharedProgram first = rewriting.program;
  // What an earlier process measured saves time, and is not there to be spent on something else.
  const double left = choice.remembered ? 0 : options.tune_seconds - choice.tune_milliseconds / 1e3;
  const double seconds = std::max(left, options.tune_seconds / 2);
  const auto exchanges =
      exchanges_to_try(*first, order_of(*choice.executable, inputs), other_kernels, kKinds);
  KnownExchanges known(std::move(known_times), *first, choice.streams);
  compile_kernels_of(exchanges, known, first->device());

  Rivals rivals(*choice.executable, inputs, options);
  const auto measuring = Clock::now();
  const KernelJudge judge{
      .time = [&](const SharedProgram& best, const SharedProgram& rival, const Exchange& exchange,
                  bool again) -> ReplayTimes {
        if (!again && !fits_in_place(exchange, *first)) return {};
        rivals.keep(best, rival);
        const std::array executables = {best == first ? choice.executable.get() : &rivals.of(best),
                                        &rivals.of(rival)};
        const auto times = again ? time_in_turn(executables, inputs, seconds / 4, kRoundsAgain)
                                 : time_in_turn(executables, inputs, seconds / 8, kRounds);
        return {median(times[0]), median(times[1])};
      },
      .time_is_left = [&] { return seconds_since(measuring) < seconds; }};
  ChosenKernels chosen = choose_kernels(first, exchanges, known, judge);
  choice.kernels = std::move(chosen.tried);
  if (chosen.program != first) {
    try {
      choice.executable = rivals.take(chosen.program);
      rewriting.program = chosen.program;
      rewriting.exact = false;
    } catch (const std::exception&) {  // what is there already can be replayed
      for (TriedKernel& tried : choice.kernels) tried.kept = false;
    }
  }
  choice.kernels_milliseconds = seconds_since(start) * 1e3;
}

}  // namespace nimble
