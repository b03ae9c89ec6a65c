#include "nimble/engine/measure_alone.h"

#include <gtest/gtest.h>
#include "../torch/recorded.h"
#include "nimble/core/reachability.h"
#include "nimble/core/schedule.h"
#include "nimble/torch/dependencies.h"

namespace nimble {
namespace {

//   a   b            a   b
//                    │ ╳ │
//   a'  b'   ──▶     a'  b'
//                    │ ╳ │
//   a"  b"           a"  b"
TEST(MeasureAlone, ARoundBeginsWhenAllOfTheOneBeforeItHaveEnded) {
  TaskGraphBuilder builder;
  for (const char* name : {"a", "b", "a'", "b'", "a\"", "b\""}) builder.add_task(name);
  const TaskGraph graph = round_after_round(std::move(builder).build(), 2);
  const Reachability order(graph);
  for (std::uint32_t before = 0; before < 6; ++before) {
    for (std::uint32_t after = 0; after < 6; ++after) {
      EXPECT_EQ(order.happens_before(TaskId{before}, TaskId{after}), before / 2 < after / 2)
          << before << ' ' << after;
    }
  }
  EXPECT_EQ(plan(graph, {}).streams.size(), 2u);
}

TEST(MeasureAlone, WhatWaitedBeforeStillWaits) {
  TaskGraphBuilder builder;
  const TaskId a = builder.add_task("a"), b = builder.add_task("b");
  builder.add_edge(a, b);
  EXPECT_TRUE(Reachability(round_after_round(std::move(builder).build(), 2)).happens_before(a, b));
}

TEST(MeasureAlone, TasksSideBySideReadWhatIsOutsideAndLeaveItAsItWas) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = at::ones({64, 64});
  const Program program = record({at::ones({64, 64})}, [&](const Tensors& in) -> Tensors {
    return {at::mm(in[0], weight), at::mm(weight, in[0])};
  });
  EXPECT_GT(measure_side_by_side(program.buffers, program.tasks), 0);
  EXPECT_TRUE(at::equal(weight, at::ones({64, 64})));
}

}  // namespace
}  // namespace nimble
