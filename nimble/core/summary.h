#pragma once

#include <cstddef>
#include <cstdint>

#include "nimble/core/json.h"
#include "nimble/core/simulate.h"

namespace nimble {

// A graph and a schedule in numbers: what `nimble-plan` prints.
struct Summary {
  std::size_t tasks = 0, edges = 0;
  std::size_t reduced_edges = 0;  // |E'|, of the minimum equivalent graph
  std::size_t matching = 0;       // |M|: maximum concurrency takes tasks - |M| streams and |E'| - |M| syncs
  std::size_t streams = 0, syncs = 0;
  std::size_t degree_of_concurrency = 0;
  std::uint64_t arena_bytes = 0, arena_lower_bound = 0;
  std::uint64_t buffer_bytes = 0;  // of all buffers: what they would take without sharing
  LowerBounds bounds;
  Nanoseconds one_stream = 0;  // predicted, for all tasks one after the other …
  Nanoseconds predicted = 0;   // … and for this schedule
};

// The schedule must verify. Costs as much as planning does.
Summary summarize(const GraphFile& file, const Schedule& schedule, const Machine& machine = {});

}  // namespace nimble
