#include "nimble/engine/candidates.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "nimble/core/median.h"
#include "nimble/core/verify.h"
#include "nimble/torch/dependencies.h"

namespace nimble {

double Candidate::median() const { return nimble::median(times); }

CandidateMaker::CandidateMaker(const std::shared_ptr<const Program>& program,
                               std::span<const at::Tensor> inputs, const CompileOptions& options,
                               Backend& backend)
    : program_(program),
      inputs_(inputs),
      options_(options),
      backend_(backend),
      memory_(memory_demand(*program, backend.alignment())),
      graph_(dependencies(*program)) {}

void CandidateMaker::know_costs(std::span<const Nanoseconds> costs) {
  graph_ = dependencies(*program_, costs);
}

Schedule CandidateMaker::plan(StreamLimit limit) const {
  const bool shares = options_.share_memory;
  Schedule schedule = nimble::plan(graph_, shares ? memory_.specs : std::vector<BufferSpec>(), limit);
  if (!shares) schedule.memory = place_apart(memory_.specs);
  verify_or_throw(graph_, memory_.specs, schedule);
  return schedule;
}

Candidate CandidateMaker::bind(Schedule schedule, const Executable* same_program,
                               const Executable* memory_of) const {
  return bind(std::move(schedule), memory_, same_program, memory_of);
}

Candidate CandidateMaker::bind_for_good(Schedule schedule, const Executable* same_program) const {
  const TaskGraph order = happens_before_graph(graph_, schedule);
  const MemoryDemand memory = memory_demand_with_escaped(*program_, backend_.alignment(), order);
  schedule.memory = plan_memory(memory.specs, order, schedule.launch_order);
  verify_or_throw(graph_, memory.specs, schedule);
  return bind(std::move(schedule), memory, same_program, nullptr);
}

Candidate CandidateMaker::bind(Schedule schedule, const MemoryDemand& memory, const Executable* same_program,
                               const Executable* memory_of) const {
  Candidate candidate{.streams = schedule.streams.size(), .syncs = schedule.wait_count()};
  BindOptions bind{.alias_outputs = options_.alias_outputs,
                   .graph = options_.graph,
                   .example_inputs = Tensors(inputs_.begin(), inputs_.end()),
                   .same_program = same_program,
                   .memory_of = memory_of};
  bind.threads_per_stream =
      std::max(1, at::get_num_threads() / static_cast<int>(std::max<std::size_t>(1, candidate.streams)));
  candidate.executable = backend_.bind({program_, graph_, memory, std::move(schedule)}, bind);
  candidate.threads_per_stream = candidate.executable->report().threads_per_stream;
  return candidate;
}

std::vector<Candidate> CandidateMaker::bind_all(std::vector<Schedule> schedules,
                                                const Executable& same_program,
                                                const std::function<std::string(Candidate&)>& why_not) const {
  constexpr std::uint64_t kMuch = 256 << 20;  // less is not worth binding the chosen one once more
  std::uint64_t together = 0;
  for (const Schedule& schedule : schedules) together += schedule.memory.arena_bytes;
  std::vector<std::size_t> by_size(schedules.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
    return schedules[a].memory.arena_bytes > schedules[b].memory.arena_bytes;
  });
  std::vector<Candidate> candidates(schedules.size());
  const Executable* largest = nullptr;
  for (const std::size_t i : by_size) {
    Candidate& candidate = candidates[i];
    candidate.streams = schedules[i].streams.size();
    try {
      candidate = bind(std::move(schedules[i]), &same_program, largest);
      candidate.rejected = why_not(candidate);
    } catch (const c10::OutOfMemoryError&) {  // what fits can still be replayed
      candidate.rejected = "out of memory";
    }
    if (!largest && together > kMuch) largest = candidate.executable.get();
  }
  return candidates;
}

}  // namespace nimble
