// What a recording holds for changes, or is not there yet, or is never the same twice.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "nimble/engine/compile.h"
#include "nimble/engine/errors.h"

namespace nimble {
namespace {

class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

class Stale : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(0); }
  const std::vector<std::string>& warnings() const { return warnings_.texts; }

 private:
  torch::NoGradGuard no_grad_;
  Warnings warnings_;
  c10::WarningUtils::WarningHandlerGuard collected_{&warnings_};
};

TEST_F(Stale, AWeightThatIsTransposedInItsMemoryIsRecordedAnew) {
  at::Tensor weight = torch::randn({4, 4});
  auto fast = compile([&](const Tensors& in) -> Tensors { return {torch::mm(in[0], weight)}; });
  const at::Tensor x = torch::randn({2, 4});
  for (int i = 0; i < 3; ++i) fast({x});
  weight.t_();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(fast({x})[0], torch::mm(x, weight))) << "call " << i;
  EXPECT_EQ(fast.stats().recordings, 2u);
  EXPECT_EQ(fast.stats().replays, 2u);
}

TEST_F(Stale, AnotherTypeOrOffsetInTheSameMemoryIsRecordedAnew) {
  at::Tensor weight = torch::arange(8, torch::kFloat);
  const at::Tensor all = weight.detach();
  auto fast = compile([&](const Tensors& in) -> Tensors { return {in[0] + weight.sum()}; });
  const at::Tensor x = torch::ones({2}, torch::kDouble);
  const auto expect_eagers = [&](const char* what) {
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(at::equal(fast({x})[0], x + weight.sum())) << what << ", call " << i;
  };
  weight.set_data(all.slice(0, 0, 4));
  expect_eagers("first half");
  weight.set_data(all.slice(0, 4));
  expect_eagers("second half");
  weight.set_data(all.slice(0, 4).view(torch::kInt));
  expect_eagers("as integers");
}

// A buffer has one tensor alone, so that of the second is not among those that a program holds.
TEST_F(Stale, TheSecondOfTwoWeightsInOneMemoryIsWatchedAsWell) {
  const at::Tensor flat = torch::randn({8});
  at::Tensor first = flat.slice(0, 0, 4).view({2, 2}).detach();
  at::Tensor second = flat.slice(0, 4).view({2, 2}).detach();
  const auto function = [&](const Tensors& in) -> Tensors { return {in[0].mm(first).mm(second)}; };
  auto fast = compile(function, {}, {.tensors = [&] { return Tensors{first, second}; }, .variant = {}});
  const at::Tensor x = torch::randn({2, 2});
  for (int i = 0; i < 3; ++i) fast({x});
  ASSERT_EQ(fast.stats().replays, 1u);
  second.t_();
  EXPECT_TRUE(at::equal(fast({x})[0], function({x})[0]));
}

TEST_F(Stale, AnUndefinedArgumentRunsEagerly) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {in[1].defined() ? in[0] + in[1] : in[0] * 2};
  };
  auto fast = compile(function);
  const at::Tensor x = torch::ones({2});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(fast({x, at::Tensor()})[0], x * 2)) << "call " << i;
    EXPECT_TRUE(at::equal(fast({x, x})[0], x + x)) << "call " << i;
  }
  EXPECT_EQ(fast.stats().replays, 1u) << "of the other signature";
  EXPECT_EQ(fast.stats().recordings, 2u);
  EXPECT_NE(fast.explain().find("an argument cannot be replayed"), std::string::npos) << fast.explain();
  EXPECT_THROW(compile(function, {.strict = true})({x, at::Tensor()}), RecordError);
  EXPECT_THROW(compile(function).prepare({x, at::Tensor()}), RecordError);
}

TEST_F(Stale, AnUndefinedResultRunsEagerly) {
  const auto function = [](const Tensors& in) -> Tensors { return {in[0] * 2, at::Tensor()}; };
  const at::Tensor x = torch::ones({2});
  for (const bool grad : {false, true}) {
    const torch::AutoGradMode mode(grad);
    const at::Tensor input = x.clone().requires_grad_(grad);
    auto fast = compile(function);
    for (int i = 0; i < 3; ++i) {
      const Tensors results = fast({input});
      ASSERT_EQ(results.size(), 2u);
      EXPECT_TRUE(at::equal(results[0], x * 2));
      EXPECT_FALSE(results[1].defined());
    }
    EXPECT_NE(fast.explain().find("a result cannot be replayed"), std::string::npos) << fast.explain();
    EXPECT_THROW(compile(function, {.strict = true})({input}), RecordError);
  }
}

TEST_F(Stale, AResultThatIsUndefinedLaterOnRunsEagerly) {
  int calls = 0;
  auto fast = compile([&](const Tensors& in) -> Tensors { return {calls++ ? at::Tensor() : in[0] * 2}; });
  EXPECT_TRUE(fast({torch::ones({2})})[0].defined());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(fast({torch::ones({2})})[0].defined());
  EXPECT_NE(fast.explain().find("a result cannot be replayed"), std::string::npos) << fast.explain();
}

TEST_F(Stale, APrepareThatFindsNothingSetUpMayBeTriedAgain) {
  at::Tensor cache;
  const auto function = [&](const Tensors& in) -> Tensors {
    if (!cache.defined()) cache = in[0].exp();
    return {in[0] * cache};
  };
  auto fast = compile(function);
  const Tensors inputs = {torch::ones({2})};
  try {
    fast.prepare(inputs);
    ADD_FAILURE() << "the first call makes a tensor that stays";
  } catch (const RecordError& error) {
    EXPECT_NE(std::string(error.what()).find("call the function once, then prepare() again"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(fast.stats().refusals, 0u);
  function(inputs);
  fast.prepare(inputs);
  EXPECT_TRUE(at::equal(fast(inputs)[0], function(inputs)[0]));
  EXPECT_EQ(fast.stats().replays, 1u);
}

TEST_F(Stale, CallsAreReplayedThoughAPrepareFoundNothingSetUp) {
  at::Tensor cache;
  auto fast = compile([&](const Tensors& in) -> Tensors {
    if (!cache.defined()) cache = in[0].exp();
    return {in[0] * cache};
  });
  EXPECT_THROW(fast.prepare({torch::ones({2})}), RecordError);
  for (int i = 0; i < 4; ++i) fast({torch::ones({2})});
  EXPECT_GE(fast.stats().replays, 2u) << fast.explain();
}

class AWeightOfItsOwnAtEachCall : public Stale {
 protected:
  Tensors call() {
    weight_ = torch::randn({2});
    const at::Tensor x = torch::ones({2});
    Tensors results = fast_({x});
    EXPECT_TRUE(at::equal(results[0], x * weight_));
    return results;
  }

  at::Tensor weight_ = torch::randn({2});
  CompiledFunction fast_ = compile([this](const Tensors& in) -> Tensors { return {in[0] * weight_}; }, {},
                                   {.tensors = [this] { return Tensors{weight_}; }, .variant = {}});
};

TEST_F(AWeightOfItsOwnAtEachCall, IsNotRecordedForEver) {
  for (int i = 0; i < 30; ++i) call();
  EXPECT_EQ(fast_.stats().recordings, 8u);
  EXPECT_EQ(fast_.stats().eager_calls, 22u);
  EXPECT_EQ(fast_.stats().refusals, 1u);
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_NE(warnings()[0].find("a tensor that Outside names is another at each call"), std::string::npos)
      << warnings()[0];
  EXPECT_NE(fast_.explain().find("dropped again and again"), std::string::npos) << fast_.explain();
}

TEST_F(AWeightOfItsOwnAtEachCall, IsRecordedAgainAfterARefresh) {
  for (int i = 0; i < 30; ++i) call();
  fast_.refresh();
  for (int i = 0; i < 4; ++i) fast_({torch::ones({2})});
  EXPECT_EQ(fast_.stats().replays, 2u) << fast_.explain();
}

TEST_F(AWeightOfItsOwnAtEachCall, IsWorthARecordingIfThatAnswersACallInBetween) {
  for (int i = 0; i < 12; ++i) {
    call();
    for (int again = 0; again < 3; ++again) fast_({torch::ones({2})});
  }
  EXPECT_EQ(fast_.stats().recordings, 12u);
  EXPECT_EQ(fast_.stats().replays, 24u);
  EXPECT_TRUE(warnings().empty()) << warnings()[0];
}

TEST_F(AWeightOfItsOwnAtEachCall, IsCountedForEachSignature) {
  const at::Tensor other = torch::ones({1});
  for (int i = 0; i < 30; ++i) {
    call();
    EXPECT_TRUE(at::equal(fast_({other})[0], weight_));  // in between, of another signature
  }
  EXPECT_EQ(fast_.stats().recordings, 16u);
  EXPECT_EQ(warnings().size(), 1u);
}

}  // namespace
}  // namespace nimble
