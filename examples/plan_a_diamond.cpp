#include <iostream>
#include <utility>
#include <vector>

#include "nimble/core/schedule.h"
#include "nimble/core/verify.h"

//        ┌─▶ left ──┐
//  stem ─┤          ├─▶ join
//        └─▶ right ─┘
int main() {
  nimble::TaskGraphBuilder builder;
  const auto stem = builder.add_task("stem", 10'000);  // costs are nanoseconds, and optional
  const auto left = builder.add_task("left", 20'000);
  const auto right = builder.add_task("right", 30'000);
  const auto join = builder.add_task("join", 10'000);
  builder.add_edge(stem, left);
  builder.add_edge(stem, right);
  builder.add_edge(left, join);
  builder.add_edge(right, join);
  builder.add_edge(stem, join);  // implied by the others: costs no synchronisation
  const nimble::TaskGraph graph = std::move(builder).build();

  const std::vector<nimble::BufferSpec> buffers = {
      {.name = "stem's output", .bytes = 4096, .alignment = 512, .uses = {stem, left, right}},
      {.name = "left's output", .bytes = 4096, .alignment = 512, .uses = {left, join}},
      {.name = "right's output", .bytes = 4096, .alignment = 512, .uses = {right, join}},
  };

  const nimble::Schedule schedule = nimble::plan(graph, buffers);
  nimble::verify_or_throw(graph, buffers, schedule);
  std::cout << schedule.streams.size() << " streams, " << schedule.wait_count() << " waits, "
            << schedule.memory.arena_bytes << " bytes\n";
}
