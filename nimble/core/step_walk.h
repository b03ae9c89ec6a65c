#pragma once

#include <functional>
#include <vector>

#include "nimble/core/schedule.h"
#include "nimble/core/sync_plan.h"

namespace nimble {

// A stream that stops for ever at a wait, `step` being that wait's index in its program.
struct StuckStream {
  StreamId stream;
  std::size_t step;
};

// Visits the steps of a schedule in an order in which they could run: each stream from front to back, a wait
// only after its event was recorded. Follows the launch order as far as that leads. Returns the streams that
// never get to their end, and trusts nothing: any schedule may be walked. O(steps).
std::vector<StuckStream> walk_steps(const Schedule& schedule,
                                    const std::function<void(StreamId, const Step&)>& visit);

// The waits of a schedule as pairs of tasks, in the order of the walk: the last task before the event was
// recorded and the next task after the wait. Waits that order nothing are left out.
std::vector<Wait> waits_between_tasks(const Schedule& schedule);

}  // namespace nimble
