#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/engine/choose_kernels.h"
#include "nimble/engine/options.h"
#include "nimble/engine/rival_schedules.h"
#include "nimble/torch/outside_state.h"

namespace nimble {

// What preparation decided, for reports.
struct Choice {
  std::unique_ptr<Executable> executable;
  std::size_t tasks = 0, edges = 0, streams = 0, syncs = 0, degree_of_concurrency = 0;
  std::uint64_t allocated_bytes = 0;  // what the planned buffers take without reuse
  std::vector<Tried> tried;
  double plan_milliseconds = 0, tune_milliseconds = 0;
  bool remembered = false;           // what was tried was measured by an earlier process
  std::vector<TriedKernel> kernels;  // inside the schedule, see kernels_in_schedule.h
  double kernels_milliseconds = 0;   // what that took; 0 where it was not done
};

// Plans, verifies, binds and, where there is a choice and time for it, measures schedules with different
// numbers of streams; keeps the fastest. One stream is always measured, so the result is never slower than
// it. Replays the program on `inputs`, from the state outside that `before` holds; whoever calls restores
// that state afterwards.
//
// `owns_escaped`: what the program leaves outside (gradients) is nobody's but this program's, and may move
// into its memory. `known`: where to look for what an earlier process measured, and to add to; may be absent.
Choice choose_schedule(const std::shared_ptr<const Program>& program, std::span<const at::Tensor> inputs,
                       const OutsideState& before, const CompileOptions& options, bool owns_escaped,
                       std::shared_ptr<KnownTimes> known = nullptr);

}  // namespace nimble
