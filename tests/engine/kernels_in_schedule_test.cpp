#include "nimble/engine/kernels_in_schedule.h"

#include <gtest/gtest.h>

#include "../torch/called.h"
#include "../torch/recorded.h"
#include "nimble/torch/rewrites/cuda/other_kernels.h"

namespace nimble {
namespace {

// As if an earlier process had found that only kernel 2 is faster than all others, whatever the tasks.
class KernelTwoIsFaster final : public KnownTimes {
 public:
  std::optional<Nanoseconds> find(const std::string& tasks) const override {
    if (tasks.find(" before\n") != std::string::npos) return 1'000'000;
    return tasks.ends_with("by 2") ? 500'000 : 2'000'000;
  }
  void add(const std::string& tasks, Nanoseconds) override {
    ADD_FAILURE() << "was measured again: " << tasks;
  }
};

// On a CPU all of these kernels are the same calls of PyTorch's, so which one wins is chance; the way there
// is the same.
class KernelsInSchedule : public ::testing::Test {
 protected:
  KernelsInSchedule() {
    torch::manual_seed(0);
    rewriting_.program = program_ = std::make_shared<const Program>(record(inputs_, [&](const Tensors& in) {
      const at::Tensor y = product(in[0], 0);
      return Tensors{product(y, 1) + product(y, 0), product(y, 2)};
    }));
    before_ = OutsideState::save(*program_, inputs_);
  }

  at::Tensor product(const at::Tensor& x, std::size_t weight) const {
    const std::vector<std::int64_t> one = {1, 1}, zero = {0, 0};
    return call_operator("nimble::matrix_convolution", "",
                         {x, weights_[weight], c10::IValue(), c10::IValue(), "relu", std::int64_t{0},
                          c10::IValue(), c10::IValue(), one, zero, one, "none", "none", false});
  }

  Choice chosen(const CompileOptions& options, std::shared_ptr<KnownTimes> known = nullptr) {
    Choice choice = choose_schedule(program_, inputs_, before_, options, /*owns_escaped=*/true);
    schedule_ = choice.executable->plan().schedule;
    choose_kernels_in_schedule(rewriting_, choice, inputs_, options, std::move(known));
    return choice;
  }

  torch::NoGradGuard no_grad_;
  const Tensors inputs_ = {torch::randn({1, 8, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast)};
  const Tensors weights_ = {torch::randn({8, 8, 1, 1}), torch::randn({8, 8, 1, 1}),
                            torch::randn({4, 8, 1, 1})};
  std::shared_ptr<const Program> program_;
  Rewriting rewriting_;
  OutsideState before_;
  Schedule schedule_;
};

TEST_F(KernelsInSchedule, AreTriedInTheVeryScheduleThatWasChosen) {
  for (const std::size_t streams : {1u, 2u}) {
    rewriting_.program = program_;
    Choice choice = chosen({.streams = streams, .tune_seconds = 5});
    EXPECT_FALSE(choice.kernels.empty());
    EXPECT_GT(choice.kernels_milliseconds, 0);
    EXPECT_EQ(choice.executable->plan().schedule, schedule_);
    EXPECT_EQ(choice.executable->plan().program, rewriting_.program);
  }
}

TEST_F(KernelsInSchedule, WhatIsKeptIsWhatTheProgramDoesFromThenOn) {
  const Choice choice = chosen({.tune_seconds = 5});
  std::map<std::string, std::string> kernel;  // by kind
  for (const TriedKernel& tried : choice.kernels) {
    EXPECT_GT(tried.times.before, 0);
    EXPECT_GT(tried.times.after, 0);
    EXPECT_EQ(tried.from, kernel.emplace(tried.like, "0").first->second);
    if (tried.kept) kernel[tried.like] = tried.to;
  }
  std::size_t others = 0;
  for (std::size_t i = 0; i < program_->tasks.size(); ++i) {
    others += kernel_name(rewriting_.program->tasks[i]) != kernel_name(program_->tasks[i]);
  }
  const bool any_kept = std::ranges::any_of(choice.kernels, &TriedKernel::kept);
  EXPECT_EQ(others > 0, any_kept);
  EXPECT_EQ(rewriting_.program != program_, any_kept);
}

TEST_F(KernelsInSchedule, WhatAnEarlierProcessFoundIsTakenWithoutMeasuring) {
  for (const std::size_t streams : {1u, 2u}) {
    rewriting_ = {.program = program_};
    Choice choice = chosen({.streams = streams}, std::make_shared<KernelTwoIsFaster>());
    EXPECT_NE(rewriting_.program, program_);
    EXPECT_FALSE(rewriting_.exact);
    EXPECT_EQ(kernel_name(rewriting_.program->tasks[0]), "2");
    for (const Task& task : rewriting_.program->tasks) {
      // Beside another stream, not all tasks need be ones that the whole waits for.
      if (streams == 1) {
        EXPECT_EQ(kernel_name(task), other_kernels(task).empty() ? "" : "2");
      }
    }
    EXPECT_EQ(choice.executable->plan().program, rewriting_.program);
    EXPECT_EQ(choice.executable->plan().schedule, schedule_);
    const Tensors fresh = {torch::randn_like(inputs_[0])};
    const Tensors given = choice.executable->replay(fresh);
    const at::Tensor y = product(fresh[0], 0);
    EXPECT_TRUE(at::allclose(given[0], product(y, 1) + product(y, 0)));
    EXPECT_TRUE(at::allclose(given[1], product(y, 2)));
  }
}

TEST_F(KernelsInSchedule, WhatAllocatesSomethingElseThanTheTaskDidIsNoCandidate) {
  Program other = *program_;
  ASSERT_FALSE(other.tasks[0].allocations.empty());
  other.tasks[0].allocations.front().bytes += 64;
  rewriting_.program = program_ = std::make_shared<const Program>(std::move(other));
  const Choice choice = chosen({.streams = 1, .tune_seconds = 5});
  EXPECT_FALSE(choice.kernels.empty());
  for (const TriedKernel& tried : choice.kernels) {
    EXPECT_EQ(tried.like, "matrix_convolution(1x8x6x6, 4x8x1x1)") << "not like the first task";
  }
}

TEST_F(KernelsInSchedule, WithoutSuchTasksNothingIsTried) {
  rewriting_.program = program_ = std::make_shared<const Program>(
      record(inputs_, [&](const Tensors& in) { return Tensors{at::conv2d(in[0], weights_[0]).relu()}; }));
  const Choice choice = chosen({.tune_seconds = 0.1});
  EXPECT_TRUE(choice.kernels.empty());
  EXPECT_EQ(rewriting_.program, program_);
}

}  // namespace
}  // namespace nimble
