#pragma once

#include <cstdint>
#include <span>

#include "nimble/core/memory_plan.h"
#include "nimble/core/schedule.h"
#include "nimble/core/task_graph.h"

namespace nimble {

// The same streams with a few more waits, where these let buffers share memory. A task beside the main path
// (in training the gradient of a weight, say) is nearly always done when memory is scarcest, but unless
// somebody waits for it what it reads must stay. No wait is added that the memory plan does not need.
//
// Returns the schedule as it is where that would not save a hundredth of the arena and `worthwhile` bytes, or
// would take longer, as far as costs tell, by more than a two-hundredth. The schedule must have been made for
// this graph and its memory planned for these buffers. Costs what a memory plan and a sync plan cost, and
// nothing where the arena is no larger than its lower bound.
inline constexpr std::uint64_t kWorthAWait = 16 << 20;
Schedule with_waits_for_memory(const TaskGraph& graph, std::span<const BufferSpec> buffers, Schedule schedule,
                               std::uint64_t worthwhile = kWorthAWait);

}  // namespace nimble
