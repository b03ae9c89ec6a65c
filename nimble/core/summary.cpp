#include "nimble/core/summary.h"

#include "nimble/core/degree_of_concurrency.h"
#include "nimble/core/matching.h"
#include "nimble/core/minimum_equivalent_graph.h"

namespace nimble {

Summary summarize(const GraphFile& file, const Schedule& schedule, const Machine& machine) {
  const TaskGraph reduced = minimum_equivalent_graph(file.graph);
  Summary summary;
  summary.tasks = file.graph.task_count();
  summary.edges = file.graph.edge_count();
  summary.reduced_edges = reduced.edge_count();
  summary.matching = maximum_matching(reduced).size;
  summary.streams = schedule.streams.size();
  summary.syncs = schedule.wait_count();
  summary.degree_of_concurrency = degree_of_concurrency(reduced);
  summary.arena_bytes = schedule.memory.arena_bytes;
  summary.arena_lower_bound = schedule.memory.lower_bound;
  for (const BufferSpec& buffer : file.buffers) summary.buffer_bytes += buffer.bytes;
  summary.bounds = lower_bounds(file.graph, machine);
  summary.one_stream = summary.bounds.work;  // one stream waits for nothing
  summary.predicted = simulate(file.graph, schedule, machine).total;
  return summary;
}

}  // namespace nimble
