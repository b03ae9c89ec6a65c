#include "nimble/torch/rewrites/faster_of.h"

#include "nimble/core/error.h"
#include "rewritten.h"

namespace nimble {
namespace {

using FasterOf = RewriteTest;

// Candidates of one task each, which take the time that is given for their operator.
struct Times {
  std::map<std::string, Nanoseconds> by_operator;
  int measured = 0;

  RewriteContext context(double seconds = 1) {
    return {.measure =
                [this](std::span<const Buffer>, std::span<const Task> tasks) {
                  ++measured;
                  const auto found = by_operator.find(tasks[0].op.operator_name().name);
                  if (found == by_operator.end()) throw Error("it fails");
                  return found->second;
                },
            .measure_seconds = seconds};
  }
};

std::vector<std::vector<Task>> exp_or_neg() {
  const Program program =
      record({torch::randn({4})}, [](const Tensors& in) -> Tensors { return {in[0].exp().neg()}; });
  return {{program.tasks[0]}, {program.tasks[1]}};
}

TEST_F(FasterOf, TheFasterWayIsTaken) {
  Times times{{{"aten::exp", 100}, {"aten::neg", 50}}};
  const RewriteContext context = times.context();
  EXPECT_EQ(Chooser(context).faster_of({}, exp_or_neg()), 1u);
}

TEST_F(FasterOf, TheFirstStaysUnlessAnotherIsClearlyFaster) {
  Times times{{{"aten::exp", 100}, {"aten::neg", 99}}};
  const RewriteContext context = times.context();
  EXPECT_EQ(Chooser(context).faster_of({}, exp_or_neg()), 0u);
}

TEST_F(FasterOf, AWayThatFailsIsNotTaken) {
  Times times{{{"aten::neg", 1000}}};
  const RewriteContext context = times.context();
  EXPECT_EQ(Chooser(context).faster_of({}, exp_or_neg()), 1u);
}

TEST_F(FasterOf, WhatLooksAlikeIsMeasuredOnce) {
  Times times{{{"aten::exp", 100}, {"aten::neg", 50}}};
  const RewriteContext context = times.context();
  Chooser chooser(context);
  chooser.faster_of({}, exp_or_neg());
  chooser.faster_of({}, exp_or_neg());
  EXPECT_EQ(times.measured, 2);
}

TEST_F(FasterOf, WithoutTimeLeftTheFirstIsTaken) {
  Times times{{{"aten::exp", 100}, {"aten::neg", 50}}};
  const RewriteContext context = times.context(/*seconds=*/-1);
  EXPECT_EQ(Chooser(context).faster_of({}, exp_or_neg()), 0u);
  EXPECT_EQ(times.measured, 0);
}

}  // namespace
}  // namespace nimble
