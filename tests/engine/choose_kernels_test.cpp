#include "nimble/engine/choose_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "../torch/called.h"
#include "../torch/recorded.h"
#include "nimble/torch/dependencies.h"
#include "nimble/torch/rewrites/cuda/other_kernels.h"

namespace nimble {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using SharedProgram = std::shared_ptr<const Program>;

at::Tensor product(const at::Tensor& x, const at::Tensor& weight) {
  const std::vector<std::int64_t> one = {1, 1}, zero = {0, 0};
  return call_operator("nimble::matrix_convolution", "",
                       {x, weight, c10::IValue(), c10::IValue(), "relu", std::int64_t{0}, c10::IValue(),
                        c10::IValue(), one, zero, one, "none", "none", false});
}

//   x ─▶ large#0 ─▶ large#1 ─┬─▶ small#2 ──▶ sum#4
//                            └─▶ other#3 ──▶ result
class ChooseKernels : public ::testing::Test {
 protected:
  static Program program() {
    const at::NoGradGuard no_grad;
    const auto filters = [](std::int64_t out) { return torch::randn({out, 8, 1, 1}); };
    const at::Tensor large = filters(8), larger = filters(8), small = filters(4), other = filters(2);
    return record({torch::randn({1, 8, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast)},
                  [&](const Tensors& in) -> Tensors {
                    const at::Tensor y = product(product(in[0], large), larger);
                    const at::Tensor summed = product(y, small), result = product(y, other);
                    return {summed.sum(), result};
                  });
  }
  // Costs by task.
  TaskGraph order(const std::vector<Nanoseconds>& costs) const { return dependencies(*program_, costs); }
  std::vector<Exchange> exchanges(const std::vector<Nanoseconds>& costs, std::size_t kinds = 8) const {
    return exchanges_to_try(*program_, order(costs), other_kernels, kinds);
  }

  static std::string kernels_of(const Program& program) {
    std::string text;
    for (const Task& task : program.tasks) text += kernel_name(task);
    return text;
  }

  // As if a replay with the kernels that `kernels_of` says took so long; all that are not named take 1.
  KernelJudge judge(std::map<std::string, double> milliseconds) {
    return {.time = [=, this](const SharedProgram& best, const SharedProgram& rival, const Exchange&,
                              bool again) -> ReplayTimes {
              const auto time_of = [&](const Program& program) {
                const auto found = milliseconds.find(kernels_of(program));
                return found == milliseconds.end() ? 1.0 : found->second;
              };
              asked_.push_back(kernels_of(*rival) + (again ? " again" : ""));
              return {time_of(*best), time_of(*rival)};
            },
            .time_is_left = [] { return true; }};
  }

  static constexpr std::size_t kOthers = 3;  // kernels that each of these tasks might take besides its own
  SharedProgram program_ = std::make_shared<const Program>(program());
  KnownExchanges nothing_known_{nullptr, *program_, 1};
  std::vector<std::string> asked_;
};

class TimesInMemory final : public KnownTimes {
 public:
  std::optional<Nanoseconds> find(const std::string& tasks) const override {
    const auto found = times_.find(tasks);
    return found == times_.end() ? std::nullopt : std::optional(found->second);
  }
  void add(const std::string& tasks, Nanoseconds time) override { times_[tasks] = time; }

 private:
  std::map<std::string, Nanoseconds> times_;
};

TEST_F(ChooseKernels, TasksThatLookAlikeAreExchangedTogether) {
  const auto tried = exchanges({10, 10, 2, 1, 1});
  ASSERT_GE(tried.size(), kOthers);
  for (std::size_t i = 0; i < kOthers; ++i) EXPECT_THAT(tried[i].tasks, ElementsAre(TaskId{0}, TaskId{1}));
  EXPECT_EQ(kernels_of(exchanged(*program_, tried[0])), "1100");
  EXPECT_EQ(kernels_of(exchanged(*program_, tried[2])), "3300");
  EXPECT_EQ(kernels_of(*program_), "0000");
}

TEST_F(ChooseKernels, TheHeaviestKindIsTriedFirst) {
  const auto tried = exchanges({10, 10, 101, 100, 1});
  ASSERT_EQ(tried.size(), 3 * kOthers);
  EXPECT_THAT(tried[0].tasks, ElementsAre(TaskId{2}));
  EXPECT_THAT(tried[kOthers].tasks, ElementsAre(TaskId{3}));
  EXPECT_THAT(tried[2 * kOthers].tasks, ElementsAre(TaskId{0}, TaskId{1}));
}

TEST_F(ChooseKernels, WhatNobodyWaitsForIsLeftAsItIs) {
  const auto tried = exchanges({100, 100, 100, 50, 1});
  ASSERT_EQ(tried.size(), 2 * kOthers);
  for (const Exchange& exchange : tried) EXPECT_NE(exchange.tasks.front(), TaskId{3});
  EXPECT_EQ(exchanges({100, 100, 100, 90, 1}).size(), 3 * kOthers) << "nearly on the longest path";
}

TEST_F(ChooseKernels, NoMoreKindsAreTriedThanAskedFor) {
  EXPECT_EQ(exchanges({10, 10, 100, 100, 1}, 1).size(), kOthers);
  EXPECT_THAT(exchanges({10, 10, 100, 100, 1}, 0), IsEmpty());
}

TEST_F(ChooseKernels, KeepsWhatIsFasterAndGoesOnFromThere) {
  const auto chosen = choose_kernels(program_, exchanges({10, 10, 2, 1, 1}, 2), nothing_known_,
                                     judge({{"0000", 1.0}, {"2200", 0.9}, {"2210", 0.8}, {"2230", 0.85}}));
  EXPECT_EQ(kernels_of(*chosen.program), "2210");
  EXPECT_THAT(asked_,
              ElementsAre("1100", "2200", "2200 again", "3300", "2210", "2210 again", "2220", "2230"));
  ASSERT_EQ(chosen.tried.size(), 6u);
  const TriedKernel& kept = chosen.tried[1];
  EXPECT_TRUE(kept.kept);
  EXPECT_EQ(kept.like, "matrix_convolution(1x8x5x5, 8x8x1x1)");
  EXPECT_EQ(kept.from, "0");
  EXPECT_EQ(kept.to, "2");
  EXPECT_EQ(kept.tasks, 2u);
  EXPECT_EQ(kept.times.before, 1.0);
  EXPECT_EQ(kept.times.after, 0.9);
  EXPECT_EQ(chosen.tried[2].from, "2");
  EXPECT_FALSE(chosen.tried[2].kept);
}

TEST_F(ChooseKernels, WhatIsHardlyFasterIsNotKept) {
  const auto chosen = choose_kernels(program_, exchanges({10, 10, 2, 1, 1}, 1), nothing_known_,
                                     judge({{"1100", 0.996}, {"2200", 1.0}, {"3300", 1.1}}));
  EXPECT_EQ(chosen.program, program_);
  EXPECT_EQ(chosen.tried.size(), kOthers);
}

TEST_F(ChooseKernels, WhatIsFasterOnceAndNotTwiceIsNotKept) {
  KernelJudge lucky = judge({});
  lucky.time = [](const SharedProgram&, const SharedProgram&, const Exchange&, bool again) -> ReplayTimes {
    return {1.0, again ? 1.0 : 0.5};
  };
  const auto chosen = choose_kernels(program_, exchanges({10, 10, 2, 1, 1}), nothing_known_, lucky);
  EXPECT_EQ(chosen.program, program_);
  for (const TriedKernel& tried : chosen.tried) EXPECT_EQ(tried.times.after, 1.0);
}

TEST_F(ChooseKernels, NothingIsTimedWhenTheTimeIsUp) {
  KernelJudge hurried = judge({{"1100", 0.9}, {"2200", 0.8}, {"3300", 0.7}});
  hurried.time_is_left = [&] { return asked_.size() < 3; };
  const auto chosen = choose_kernels(program_, exchanges({10, 10, 2, 1, 1}), nothing_known_, hurried);
  EXPECT_THAT(asked_, ElementsAre("1100", "1100 again", "2200", "2200 again"));
  EXPECT_EQ(kernels_of(*chosen.program), "2200");
}

TEST_F(ChooseKernels, WhatIsKnownIsNotTimedAgainButMade) {
  const auto on_disk = std::make_shared<TimesInMemory>();
  const auto tried = exchanges({10, 10, 2, 1, 1});
  KnownExchanges first(on_disk, *program_, 4);
  const auto before = choose_kernels(program_, tried, first, judge({{"1100", 0.9}, {"1120", 0.8}}));
  ASSERT_FALSE(asked_.empty());
  asked_.clear();
  KnownExchanges next(on_disk, *program_, 4);
  KernelJudge without_time = judge({});
  without_time.time_is_left = [] { return false; };
  const auto after = choose_kernels(program_, tried, next, without_time);
  EXPECT_THAT(asked_, IsEmpty());
  EXPECT_EQ(kernels_of(*after.program), kernels_of(*before.program));
  EXPECT_EQ(after.tried.size(), before.tried.size());
  EXPECT_DOUBLE_EQ(after.tried[0].times.after, 0.9);
}

TEST_F(ChooseKernels, IsKnownOnlyForTheSameTasksOnAsManyStreams) {
  const auto on_disk = std::make_shared<TimesInMemory>();
  const auto tried = exchanges({10, 10, 2, 1, 1});
  KnownExchanges(on_disk, *program_, 4).add(tried[0], {1.0, 0.5});
  EXPECT_TRUE(KnownExchanges(on_disk, *program_, 4).find(tried[0]));
  EXPECT_FALSE(KnownExchanges(on_disk, *program_, 4).find(tried[1]));
  EXPECT_FALSE(KnownExchanges(on_disk, *program_, 2).find(tried[0]));
  EXPECT_FALSE(KnownExchanges(on_disk, exchanged(*program_, tried[4]), 4).find(tried[0]));
}

// It was faster on top of another that is not there now.
TEST_F(ChooseKernels, WhatIsKnownHoldsOnlyOnTopOfWhatItWasTimedOn) {
  const auto on_disk = std::make_shared<TimesInMemory>();
  const auto tried = exchanges({10, 10, 2, 1, 1});
  KnownExchanges first(on_disk, *program_, 4);
  const auto both = choose_kernels(program_, tried, first, judge({{"1100", 0.9}, {"1120", 0.8}}));
  ASSERT_EQ(kernels_of(*both.program), "1120");
  const auto is_of_small = [](const Exchange& exchange) { return exchange.tasks.front() == TaskId{2}; };
  std::vector<Exchange> only_small;
  std::ranges::copy_if(tried, std::back_inserter(only_small), is_of_small);
  KnownExchanges next(on_disk, *program_, 4);
  const auto alone = choose_kernels(program_, only_small, next, judge({{"0020", 1.2}}));
  EXPECT_EQ(kernels_of(*alone.program), "0000");
}

TEST_F(ChooseKernels, WhatCannotTakeThePlaceIsNotTriedAgain) {
  const auto on_disk = std::make_shared<TimesInMemory>();
  KnownExchanges known(on_disk, *program_, 4);
  const auto tried = exchanges({10, 10, 2, 1, 1}, 1);
  KernelJudge none_fits = judge({});
  none_fits.time = [&](const SharedProgram&, const SharedProgram& rival, const Exchange&,
                       bool) -> ReplayTimes {
    asked_.push_back(kernels_of(*rival));
    return {};
  };
  for (int process = 0; process < 2; ++process) {
    const auto chosen = choose_kernels(program_, tried, known, none_fits);
    EXPECT_EQ(chosen.program, program_);
    EXPECT_THAT(chosen.tried, IsEmpty());
  }
  EXPECT_THAT(asked_, ElementsAre("1100", "2200", "3300"));
}

TEST_F(ChooseKernels, WhatFailedIsTriedByTheNextProcess) {
  const auto on_disk = std::make_shared<TimesInMemory>();
  KnownExchanges known(on_disk, *program_, 4);
  const auto tried = exchanges({10, 10, 2, 1, 1}, 1);
  KernelJudge fails = judge({});
  fails.time = [](const SharedProgram&, const SharedProgram&, const Exchange&, bool) -> ReplayTimes {
    throw std::runtime_error("out of memory");
  };
  EXPECT_EQ(choose_kernels(program_, tried, known, fails).program, program_);
  EXPECT_EQ(kernels_of(*choose_kernels(program_, tried, known, judge({{"1100", 0.5}})).program), "1100");
}

}  // namespace
}  // namespace nimble
