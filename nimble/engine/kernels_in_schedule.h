#pragma once

#include <span>

#include "nimble/engine/choose.h"
#include "nimble/engine/rewriting.h"

namespace nimble {

// The step after choose_schedule. Rewrites choose kernels by measuring them alone; here the heaviest tasks
// that the whole waits for try the others they have, in the very schedule that was chosen, and program and
// executable become the ones that are fastest there. Takes what choosing the schedule left of
// `options.tune_seconds`, at least half of them, and the time to compile kernels. What `known` has of earlier
// processes is not measured again; what there was no time for is left to the next one. It may be absent.
//
// Replays the program on `inputs` many times; whoever calls puts back what that changes.
void choose_kernels_in_schedule(Rewriting& rewriting, Choice& choice, std::span<const at::Tensor> inputs,
                                const CompileOptions& options, std::shared_ptr<KnownTimes> known);

}  // namespace nimble
