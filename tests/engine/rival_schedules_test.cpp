// Schedules of one program on different numbers of streams, and what is known of them from earlier processes.

#include "nimble/engine/rival_schedules.h"

#include <gtest/gtest.h>

#include <map>

#include "../torch/recorded.h"
#include "nimble/engine/choose.h"

namespace nimble {
namespace {

// What other processes would find.
struct Remembered final : KnownTimes {
  std::map<std::string, Nanoseconds> times;
  std::optional<Nanoseconds> find(const std::string& what) const override {
    const auto found = times.find(what);
    return found == times.end() ? std::nullopt : std::optional(found->second);
  }
  void add(const std::string& what, Nanoseconds time) override { times[what] = time; }
};

//        ┌─▶ cos ─┐
//  exp ──┤        ├─▶ add
//        └─▶ sin ─┘
class Rivals : public ::testing::Test {
 protected:
  RivalSchedules rivals() { return {limits_, program_, inputs_, before_, maker_}; }
  KnownReplays known() const { return {store_, *program_}; }

  torch::NoGradGuard no_grad_;
  const Tensors inputs_ = {torch::ones({64})};
  const CompileOptions options_;
  const std::vector<StreamLimit> limits_ = {StreamLimit::at_most(1), StreamLimit::maximum()};
  std::shared_ptr<Remembered> store_ = std::make_shared<Remembered>();
  const std::shared_ptr<const Program> program_ =
      std::make_shared<const Program>(record(inputs_, [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].exp(), cosine = x.cos(), sine = x.sin();
        return {cosine + sine};
      }));
  const OutsideState before_ = OutsideState::save(*program_, inputs_);
  CandidateMaker maker_{program_, inputs_, options_, cpu_backend()};
};

TEST_F(Rivals, TheFirstIsThereFromTheBeginning) {
  RivalSchedules rivals = this->rivals();
  EXPECT_EQ(rivals.count(), 2u);
  EXPECT_EQ(rivals.take_fastest().streams, 1u);
}

TEST_F(Rivals, EachScheduleIsTimed) {
  RivalSchedules rivals = this->rivals();
  KnownReplays nothing(nullptr, *program_);
  rivals.measure(0.01, nothing);
  const std::vector<Tried> tried = rivals.tried();
  ASSERT_EQ(tried.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(tried[i].streams, i + 1);
    EXPECT_EQ(tried[i].rejected, "");
    EXPECT_GT(tried[i].milliseconds, 0);
  }
}

TEST_F(Rivals, NothingIsRememberedWhereOneTimeIsMissing) {
  known().add(limits_[1], {2, 1.0});
  EXPECT_FALSE(rivals().remember(known()));
}

TEST_F(Rivals, TheFastestOfAnEarlierProcessIsTakenWithoutMeasuring) {
  for (const std::size_t fastest : {0u, 1u}) {
    known().add(limits_[0], {1, fastest == 0 ? 1.0 : 3.0});
    known().add(limits_[1], {2, fastest == 1 ? 1.0 : 3.0});
    RivalSchedules rivals = this->rivals();
    EXPECT_TRUE(rivals.remember(known()));
    const std::vector<Tried> tried = rivals.tried();
    ASSERT_EQ(tried.size(), 2u);
    EXPECT_EQ(tried[fastest].milliseconds, 1.0);
    EXPECT_EQ(tried[1 - fastest].milliseconds, 3.0);
    Candidate taken = rivals.take_fastest();
    EXPECT_EQ(taken.streams, fastest + 1);
    const Tensors fresh = {torch::full({64}, 0.5)};
    EXPECT_TRUE(at::equal(taken.executable->replay(fresh)[0], fresh[0].exp().cos() + fresh[0].exp().sin()));
  }
}

TEST_F(Rivals, MoreStreamsHaveToBeFasterByMoreThanTheNoise) {
  known().add(limits_[0], {1, 1.0});
  known().add(limits_[1], {2, 0.995});
  RivalSchedules rivals = this->rivals();
  EXPECT_TRUE(rivals.remember(known()));
  EXPECT_EQ(rivals.take_fastest().streams, 1u);
}

TEST_F(Rivals, WhatIsMeasuredIsThereForTheNextProcess) {
  RivalSchedules first = rivals();
  KnownReplays known = this->known();
  first.measure(0.01, known);
  RivalSchedules second = rivals();
  EXPECT_TRUE(second.remember(this->known()));
  ASSERT_EQ(second.tried().size(), first.tried().size());
  for (std::size_t i = 0; i < first.tried().size(); ++i) {
    EXPECT_EQ(second.tried()[i].streams, first.tried()[i].streams);
    EXPECT_NEAR(second.tried()[i].milliseconds, first.tried()[i].milliseconds, 1e-5);
  }
  EXPECT_EQ(second.take_fastest().streams, first.take_fastest().streams);
}

TEST_F(Rivals, TimesAreThoseOfAProgramThatDoesTheSame) {
  // The same operators on the same shapes, in the same order, but the sine is that of the cosine.
  const Program other = record(inputs_, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].exp().cos();
    return {x + x.sin()};
  });
  ASSERT_EQ(operators(other), operators(*program_));
  KnownReplays(store_, *program_).add_on_one_stream(other, 0.25);
  EXPECT_EQ(KnownReplays(store_, Program(*program_)).on_one_stream(other), 0.25);
  EXPECT_FALSE(KnownReplays(store_, *program_).on_one_stream(*program_));
  EXPECT_FALSE(KnownReplays(store_, other).on_one_stream(other));
}

TEST_F(Rivals, AChoiceSaysThatItWasRemembered) {
  const auto choose = [&] {
    return choose_schedule(program_, inputs_, before_, {.tune_seconds = 0.01}, /*owns_escaped=*/true, store_);
  };
  const Choice first = choose(), second = choose();
  EXPECT_FALSE(first.remembered);
  EXPECT_EQ(second.remembered, first.tried.size() > 1);  // one core has one choice
  EXPECT_EQ(second.streams, first.streams);
}

}  // namespace
}  // namespace nimble
