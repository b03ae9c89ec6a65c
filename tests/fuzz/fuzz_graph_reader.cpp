// Any bytes as a graph file: refused with InvalidInput, or read, written back and planned, and the plans
// verify.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "nimble/core/dot.h"
#include "nimble/core/error.h"
#include "nimble/core/json.h"
#include "nimble/core/svg.h"
#include "nimble/core/trace.h"
#include "nimble/core/verify.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nimble;
  GraphFile file;
  try {
    file = graph_from_json({reinterpret_cast<const char*>(data), size});
  } catch (const InvalidInput&) {
    return 0;
  }
  require(graph_from_json(to_json(file)) == file);

  constexpr std::size_t kSmall = 100;
  if (file.graph.task_count() > kSmall || file.buffers.size() > kSmall) return 0;
  for (StreamLimit limit : {StreamLimit::maximum(), StreamLimit::at_most(1), StreamLimit::at_most(3)}) {
    const Schedule schedule = plan(file.graph, file.buffers, limit);
    require(verify(file.graph, file.buffers, schedule).empty());
    require(schedule_from_json(to_json(schedule, file), file) == schedule);
    const Simulation timeline = simulate(file.graph, schedule);
    require(timeline.total >= lower_bounds(file.graph).time(schedule.streams.size()));
    require(!to_dot(file.graph, schedule).empty());
    require(!to_trace(file.graph, schedule, timeline).empty());
    require(!to_svg(file.graph, schedule, timeline).empty());
  }
  return 0;
}
