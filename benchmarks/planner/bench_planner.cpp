#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <vector>

#include "nimble/core/degree_of_concurrency.h"
#include "nimble/core/matching.h"
#include "nimble/core/minimum_equivalent_graph.h"
#include "nimble/core/schedule.h"
#include "nimble/core/verify.h"
#include "tests/core/model_graphs.h"

// Times each step of planning, and all of them, on one family of branchy graphs of 10² to 10⁶ tasks. Run
// through run.py, which also measures memory.
namespace nimble {
namespace {

// What the steps start from, made once for each size.
struct Stages {
  explicit Stages(std::size_t tasks)
      : workload(testing::branchy(tasks, testing::typical_width(tasks))),
        reduced(minimum_equivalent_graph(workload.graph)),
        streams(maximum_concurrency(reduced)),
        schedule(make_schedule(reduced, streams)) {}

  testing::Workload workload;
  TaskGraph reduced;
  StreamAssignment streams;
  Schedule schedule;
};

const Stages& stages(const benchmark::State& state) {
  static std::map<std::int64_t, Stages> made;
  return made.try_emplace(state.range(0), static_cast<std::size_t>(state.range(0))).first->second;
}

// The yardstick: Kahn's algorithm, one look at every task and edge.
void topological_sort(benchmark::State& state) {
  const TaskGraph& graph = stages(state).workload.graph;
  for (auto _ : state) {
    std::vector<std::uint32_t> waiting_for(graph.task_count());
    std::vector<TaskId> order;
    order.reserve(graph.task_count());
    for (std::uint32_t t = 0; t < graph.task_count(); ++t) {
      waiting_for[t] = static_cast<std::uint32_t>(graph.predecessors(TaskId{t}).size());
      if (waiting_for[t] == 0) order.push_back(TaskId{t});
    }
    for (std::size_t i = 0; i < order.size(); ++i)
      for (TaskId next : graph.successors(order[i]))
        if (--waiting_for[next.index()] == 0) order.push_back(next);
    benchmark::DoNotOptimize(order.data());
  }
}

void reduction(benchmark::State& state) {
  const TaskGraph& graph = stages(state).workload.graph;
  for (auto _ : state) benchmark::DoNotOptimize(minimum_equivalent_graph(graph));
  state.counters["edges"] = static_cast<double>(graph.edge_count());
  state.counters["reduced_edges"] = static_cast<double>(stages(state).reduced.edge_count());
}

void matching(benchmark::State& state) {
  const TaskGraph& reduced = stages(state).reduced;
  std::size_t matched = 0;
  for (auto _ : state) benchmark::DoNotOptimize(matched = maximum_matching(reduced).size);
  state.counters["matched"] = static_cast<double>(matched);
}

void syncs(benchmark::State& state) {
  const Stages& given = stages(state);
  std::size_t waits = 0;
  for (auto _ : state) benchmark::DoNotOptimize(waits = plan_syncs(given.reduced, given.streams).size());
  state.counters["streams"] = static_cast<double>(given.streams.stream_count);
  state.counters["waits"] = static_cast<double>(waits);
}

// E', matching, streams and syncs.
void streams(benchmark::State& state) {
  const TaskGraph& graph = stages(state).workload.graph;
  for (auto _ : state) {
    const TaskGraph reduced = minimum_equivalent_graph(graph);
    benchmark::DoNotOptimize(make_schedule(reduced, maximum_concurrency(reduced)));
  }
  state.counters["tasks"] = static_cast<double>(graph.task_count());
}

void memory(benchmark::State& state) {
  const Stages& given = stages(state);
  MemoryPlan plan;
  for (auto _ : state)
    plan = plan_memory(given.workload.buffers, happens_before_graph(given.reduced, given.schedule),
                       given.schedule.launch_order);
  state.counters["buffers"] = static_cast<double>(given.workload.buffers.size());
  state.counters["arena_to_bound"] =
      static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound);
}

void plan_and_verify(benchmark::State& state) {
  const testing::Workload& workload = stages(state).workload;
  for (auto _ : state) {
    const Schedule schedule = plan(workload.graph, workload.buffers);
    verify_or_throw(workload.graph, workload.buffers, schedule);
  }
}

void plan_one_stream(benchmark::State& state) {
  const testing::Workload& workload = stages(state).workload;
  Schedule schedule;
  for (auto _ : state) schedule = plan(workload.graph, workload.buffers, StreamLimit::at_most(1));
  state.counters["arena_to_bound"] =
      static_cast<double>(schedule.memory.arena_bytes) / static_cast<double>(schedule.memory.lower_bound);
}

void width(benchmark::State& state) {
  const TaskGraph& reduced = stages(state).reduced;
  std::size_t degree = 0;
  for (auto _ : state) benchmark::DoNotOptimize(degree = degree_of_concurrency(reduced));
  state.counters["degree of concurrency"] = static_cast<double>(degree);
}

void sizes(benchmark::internal::Benchmark* bench) {
  for (std::int64_t tasks : {100, 300, 1000, 2000, 10'000, 30'000, 100'000, 300'000, 1'000'000})
    bench->Arg(tasks);
  bench->Unit(benchmark::kMillisecond);
}

BENCHMARK(topological_sort)->Apply(sizes);
BENCHMARK(reduction)->Apply(sizes);
BENCHMARK(matching)->Apply(sizes);
BENCHMARK(syncs)->Apply(sizes);
BENCHMARK(streams)->Apply(sizes);
BENCHMARK(memory)->Apply(sizes);
BENCHMARK(plan_and_verify)->Apply(sizes);
BENCHMARK(plan_one_stream)->Apply(sizes);
BENCHMARK(width)->Apply(sizes);

}  // namespace
}  // namespace nimble

BENCHMARK_MAIN();
