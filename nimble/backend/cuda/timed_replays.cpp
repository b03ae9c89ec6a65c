#include "nimble/backend/cuda/timed_replays.h"

#include <c10/cuda/CUDAStream.h>
#include <c10/util/ScopeExit.h>

#include "nimble/backend/cuda/capture_turns.h"
#include "nimble/kernels/cuda/dependent_launch.h"
#include "nimble/torch/outside_state.h"

namespace nimble::cuda {

void replay_timed(DeviceProgram& program, std::span<const at::Tensor> inputs,
                  std::vector<cudaStream_t> streams, IssueAll issue_all, std::size_t count,
                  c10::function_ref<void()> read_events) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const auto alone = one_capture_at_a_time();
  const DeviceProgram::Use use(program, stream);
  program.copy_in(inputs, stream);
  program.update_scalars(inputs);
  if (!program.is_warm()) program.warm_up();

  // Events lie between the tasks, so no kernel could begin early.
  const kernels::WithoutDependentLaunches without;
  CapturedGraph graph(program, std::move(streams), issue_all);
  const OutsideState before = OutsideState::save(program.program(), {});  // inputs are copied, and stay
  const auto put_back = c10::make_scope_exit([&] { before.try_restore(); });
  for (std::size_t run = 0; run <= count; ++run) {
    program.copy_in(inputs, stream);  // a program may write to its inputs
    graph.launch(stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (run > 0) read_events();
  }
}

std::vector<Event> timing_events(std::size_t count) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < count; ++i) events.emplace_back(Event::Timing::kOn);
  return events;
}

}  // namespace nimble::cuda
