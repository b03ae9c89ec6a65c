// Any bytes as a schedule of one small graph: refused with InvalidInput, or read, written back and verified;
// what verifies can be simulated and drawn.
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

// The schedules of schedule_corpus/ are for this graph.
constexpr std::string_view kDiamond = R"({"format": "nimble-graph", "version": 1,
  "tasks": [{"name": "a"}, {"name": "b", "after": ["a"]}, {"name": "c", "after": ["a"]},
            {"name": "d", "after": ["b", "c"]}],
  "buffers": [{"name": "x", "bytes": 64, "uses": ["a", "b", "c"]}, {"name": "y", "bytes": 32, "uses": ["b", "d"]},
              {"name": "z", "bytes": 16, "alignment": 16, "uses": ["c", "d"]}, {"name": "w", "bytes": 8, "uses": ["d"]}]
})";

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nimble;
  static const GraphFile file = graph_from_json(kDiamond);
  Schedule schedule;
  try {
    schedule = schedule_from_json({reinterpret_cast<const char*>(data), size}, file);
  } catch (const InvalidInput&) {
    return 0;
  }
  require(schedule_from_json(to_json(schedule, file), file) == schedule);
  if (!verify(file.graph, file.buffers, schedule).empty()) return 0;
  const Simulation timeline = simulate(file.graph, schedule);
  require(timeline.total >= lower_bounds(file.graph).time(schedule.streams.size()));
  require(!to_dot(file.graph, schedule).empty());
  require(!to_trace(file.graph, schedule, timeline).empty());
  require(!to_svg(file.graph, schedule, timeline).empty());
  return 0;
}
