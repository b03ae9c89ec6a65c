#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nimble/core/memory_plan.h"
#include "nimble/core/verify/step_order.h"

namespace nimble::verification {

struct BufferPair {
  BufferId first, second;  // by id
  friend auto operator<=>(const BufferPair&, const BufferPair&) = default;
};

// All pairs of buffers that share bytes although some use of one is not ordered against some use of the
// other; sorted. `offsets` has one entry for each buffer, and no buffer reaches beyond 2^64.
//
// "All uses of A before all uses of B" is transitive, so while nothing is wrong only neighbours in time at
// each address need to be looked at: O(buffers log buffers) and at most three questions about order for each
// buffer with one use. Only once a conflict is found are all pairs that share bytes compared.
std::vector<BufferPair> memory_conflicts(const StepOrder& order, std::span<const BufferSpec> buffers,
                                         std::span<const std::uint64_t> offsets);

}  // namespace nimble::verification
