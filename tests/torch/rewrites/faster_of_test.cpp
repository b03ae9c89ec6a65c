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

TEST_F(FasterOf, WhatIsTakenInThePlaceOfAnotherGainsTheDifference) {
  Times times{{{"aten::exp", 100}, {"aten::neg", 30}}};
  const RewriteContext context = times.context();
  Chooser chooser(context);
  const auto ways = exp_or_neg();
  EXPECT_EQ(chooser.gained(), 0);
  chooser.faster_of({}, ways);
  EXPECT_EQ(chooser.gained(), 0);
  chooser.took(ways[1], ways[0]);
  chooser.took(ways[1], ways[0]);  // at another place
  EXPECT_EQ(chooser.gained(), 140);
}

TEST_F(FasterOf, NothingIsGainedThatWasNotMeasured) {
  Times times{{{"aten::neg", 30}}};
  const RewriteContext context = times.context(), measures_nothing;
  const auto ways = exp_or_neg();
  Chooser chooser(context), other(measures_nothing);
  chooser.faster_of({}, ways);  // one of them fails
  chooser.took(ways[1], ways[0]);
  other.took(ways[1], ways[0]);
  EXPECT_EQ(chooser.gained(), 0);
  EXPECT_EQ(other.gained(), 0);
}

// A cache that another process could read.
struct Remembered final : KnownTimes {
  std::map<std::string, Nanoseconds> times;
  std::optional<Nanoseconds> find(const std::string& tasks) const override {
    const auto found = times.find(tasks);
    return found == times.end() ? std::nullopt : std::optional(found->second);
  }
  void add(const std::string& tasks, Nanoseconds time) override { times[tasks] = time; }
};

TEST_F(FasterOf, OnlyWhatWasMeasuredIsKeptForAnotherProcess) {
  Times times{{{"aten::neg", 1000}}};
  RewriteContext context = times.context();
  const auto remembered = std::make_shared<Remembered>();
  context.known = remembered;
  EXPECT_EQ(Chooser(context).faster_of({}, exp_or_neg()), 1u);
  ASSERT_EQ(remembered->times.size(), 1u);
  EXPECT_EQ(remembered->times.begin()->second, 1000);
}

TEST_F(FasterOf, WithoutTimeLeftTheFirstIsTaken) {
  Times times{{{"aten::exp", 100}, {"aten::neg", 50}}};
  const RewriteContext context = times.context(/*seconds=*/-1);
  EXPECT_EQ(Chooser(context).faster_of({}, exp_or_neg()), 0u);
  EXPECT_EQ(times.measured, 0);
}

// As if the two had been measured together and side by side.
struct SideBySide {
  Nanoseconds together = 100, side_by_side = 100;
  int measured = 0;

  bool together_is_faster(const std::shared_ptr<KnownTimes>& known = {}, double seconds = 1) {
    const RewriteContext context{.measure = [&](auto, auto) { return ++measured, together; },
                                 .measure_side_by_side = [&](auto, auto) { return ++measured, side_by_side; },
                                 .measure_seconds = seconds,
                                 .known = known};
    const auto tasks = exp_or_neg();
    const std::vector<Task> both = {tasks[0][0], tasks[1][0]};
    return Chooser(context).faster_than_side_by_side({}, both, both);
  }
};

TEST_F(FasterOf, WhatIsTogetherMustBeClearlyFasterThanSideBySide) {
  EXPECT_TRUE((SideBySide{.together = 90}.together_is_faster()));
  EXPECT_FALSE((SideBySide{.together = 99}.together_is_faster()));
}

TEST_F(FasterOf, TimesSideBySideAreKeptBesideThoseOfTheSameTasksOneAfterTheOther) {
  const auto remembered = std::make_shared<Remembered>();
  SideBySide times{.together = 50};
  EXPECT_TRUE(times.together_is_faster(remembered));
  EXPECT_EQ(remembered->times.size(), 2u);
  EXPECT_EQ(times.measured, 2);
  EXPECT_TRUE(times.together_is_faster(remembered));
  EXPECT_EQ(times.measured, 2);
}

TEST_F(FasterOf, WithoutTimeLeftWhatRunsSideBySideStays) {
  SideBySide times{.together = 50};
  EXPECT_FALSE(times.together_is_faster({}, /*seconds=*/-1));
  EXPECT_EQ(times.measured, 0);
}

}  // namespace
}  // namespace nimble
