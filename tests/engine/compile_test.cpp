#include "nimble/engine/compile.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

#include "nimble/engine/errors.h"

namespace nimble {
namespace {

class Compile : public ::testing::Test {
  void SetUp() override { torch::manual_seed(0); }
  torch::NoGradGuard no_grad_;
};

torch::nn::Sequential small_net() {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 8, 3), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
                            torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(), torch::nn::Linear(8, 4));
  net->eval();
  return net;
}

TEST_F(Compile, GivesEagersAnswersFromTheFirstCallOn) {
  auto net = small_net();
  auto fast = compile([&](const Tensors& in) -> Tensors { return {net->forward(in[0])}; });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = torch::randn({2, 3, 8, 8});
    EXPECT_TRUE(at::equal(fast({x})[0], net->forward(x))) << "call " << i;
  }
  EXPECT_EQ(fast.stats().replays, 4u);
  EXPECT_EQ(fast.stats().validations, 1u);
}

TEST_F(Compile, ASecondCallDoesNotChangeTheFirstResult) {
  auto fast = compile([](const Tensors& in) -> Tensors { return {in[0].exp()}; });
  fast.prepare({torch::zeros({4})});
  const at::Tensor first = fast({torch::zeros({4})})[0];
  fast({torch::ones({4})});
  EXPECT_TRUE(at::equal(first, torch::ones({4})));
}

TEST_F(Compile, AliasedResultsAreOverwrittenByTheNextCall) {
  auto fast = compile([](const Tensors& in) -> Tensors { return {in[0].exp()}; }, {.alias_outputs = true});
  fast.prepare({torch::zeros({4})});
  const at::Tensor first = fast({torch::zeros({4})})[0];
  fast({torch::ones({4})});
  EXPECT_TRUE(at::equal(first, torch::ones({4}).exp()));
}

TEST_F(Compile, AnotherShapeIsRecordedAnew) {
  auto fast = compile([](const Tensors& in) -> Tensors { return {in[0].sum(0)}; });
  for (int rows : {2, 3, 2, 3, 2, 3}) {
    const at::Tensor x = torch::randn({rows, 5});
    EXPECT_TRUE(at::equal(fast({x})[0], x.sum(0)));
  }
  EXPECT_EQ(fast.stats().cached, 2u);
}

TEST_F(Compile, TheLeastRecentlyUsedSignatureGoesFirst) {
  auto fast = compile([](const Tensors& in) -> Tensors { return {in[0].exp()}; }, {.cache_size = 2});
  for (int size : {1, 2, 3}) fast({torch::zeros({size})});
  EXPECT_EQ(fast.stats().cached, 2u);
  EXPECT_EQ(fast.stats().evictions, 1u);
}

TEST_F(Compile, StrictRefusesAnotherSignature) {
  auto fast = compile([](const Tensors& in) -> Tensors { return {in[0].exp()}; }, {.strict = true});
  fast({torch::zeros({4})});
  EXPECT_THROW(fast({torch::zeros({5})}), GuardError);
  EXPECT_NO_THROW(fast.prepare({torch::zeros({5})}));
  EXPECT_NO_THROW(fast({torch::zeros({5})}));
}

TEST_F(Compile, WhatCannotBeReplayedRunsEagerly) {
  auto fast = compile([](const Tensors& in) -> Tensors { return {in[0].nonzero()}; });
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = torch::randn({6}) > 0;
    EXPECT_TRUE(at::equal(fast({x})[0], x.nonzero()));
  }
  EXPECT_EQ(fast.stats().replays, 0u);
  EXPECT_THROW(fast.prepare({torch::ones({6}) > 0}), RecordError);
  EXPECT_NE(fast.explain().find("aten::nonzero"), std::string::npos) << fast.explain();
}

TEST_F(Compile, AReportHasTheMeasuredScheduleAndChangesNothing) {
  at::Tensor counter = torch::zeros({3});
  auto fast = compile([&](const Tensors& in) -> Tensors {
    counter.add_(in[0]);
    return {counter * 2 + torch::rand({3})};
  });
  const Tensors inputs = {torch::ones({3})};
  EXPECT_NE(fast.report(inputs).find("\"parts\":[]"), std::string::npos) << "nothing is recorded yet";
  fast.prepare(inputs);
  torch::manual_seed(5);
  const std::string report = fast.report(inputs);
  for (const char* field :
       {"\"add_#0\"", "\"measured\":[", "\"planned\":[", "\"critical_path\":[", "\"arena\":"}) {
    EXPECT_NE(report.find(field), std::string::npos) << field;
  }
  EXPECT_TRUE(at::equal(counter, torch::zeros({3})));
  const at::Tensor drawn = torch::rand({3});
  torch::manual_seed(5);
  EXPECT_TRUE(at::equal(drawn, torch::rand({3})));
}

TEST_F(Compile, PrepareLeavesOutsideStateAsItWas) {
  at::Tensor counter = torch::zeros({3});
  auto fast = compile([&](const Tensors& in) -> Tensors {
    counter.add_(in[0]);
    return {counter + torch::rand({3})};
  });
  torch::manual_seed(5);
  fast.prepare({torch::ones({3})});
  EXPECT_TRUE(at::equal(counter, torch::zeros({3})));
  const at::Tensor result = fast({torch::ones({3})})[0];
  torch::manual_seed(5);
  EXPECT_TRUE(at::equal(result, torch::ones({3}) + torch::rand({3})));
  EXPECT_TRUE(at::equal(counter, torch::ones({3})));
}

TEST_F(Compile, RandomNumbersFollowEagersSequence) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {torch::dropout(in[0], 0.5, true), torch::rand({2})};
  };
  auto fast = compile(function);
  const at::Tensor x = torch::ones({64});
  Tensors from_replay, from_eager;
  torch::manual_seed(3);
  for (int i = 0; i < 20; ++i)
    for (auto& t : fast({x})) from_replay.push_back(t);
  torch::manual_seed(3);
  for (int i = 0; i < 20; ++i)
    for (auto& t : function({x})) from_eager.push_back(t);
  for (std::size_t i = 0; i < from_eager.size(); ++i)
    EXPECT_TRUE(at::equal(from_replay[i], from_eager[i])) << i;
  EXPECT_EQ(fast.stats().replays, 18u);
}

TEST_F(Compile, ResultsMayBeInputsViewsParametersOrTwins) {
  const at::Tensor weight = torch::randn({4});
  const auto function = [&](const Tensors& in) -> Tensors {
    const at::Tensor sum = in[0] + weight;
    return {in[0], in[0].slice(0, 1, 3), weight, sum, sum, torch::ones({2})};
  };
  auto fast = compile(function);
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = torch::randn({4});
    const Tensors result = fast({x}), expected = function({x});
    for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_TRUE(at::equal(result[k], expected[k])) << k;
    EXPECT_TRUE(result[0].is_same(x));
    EXPECT_TRUE(result[1].is_alias_of(x));
    EXPECT_TRUE(result[2].is_same(weight));
    EXPECT_TRUE(result[3].is_same(result[4]));
  }
  EXPECT_EQ(fast.stats().replays, 2u);
}

TEST_F(Compile, AReplacedParameterIsNoticed) {
  torch::nn::Linear net(4, 4);
  auto fast = compile([&](const Tensors& in) -> Tensors { return {net->forward(in[0])}; }, {}, watch(net));
  const at::Tensor x = torch::randn({2, 4});
  for (int i = 0; i < 3; ++i) fast({x});
  net->weight.set_data(torch::randn({4, 4}));
  EXPECT_TRUE(at::equal(fast({x})[0], net->forward(x)));
}

TEST_F(Compile, ARecurrentNetworkInInferenceModeIsEagersFromTheFirstCallOn) {
  torch::nn::GRU net(torch::nn::GRUOptions(8, 16).batch_first(true));
  auto fast = compile([&](const Tensors& in) -> Tensors { return {std::get<0>(net->forward(in[0]))}; });
  const c10::InferenceMode inference;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = torch::randn({2, 5, 8});
    EXPECT_TRUE(at::equal(fast({x})[0], std::get<0>(net->forward(x)))) << "call " << i;
  }
  EXPECT_EQ(fast.stats().replays, 2u);
}

TEST_F(Compile, ViewsInInferenceModeAreEagersFromTheFirstCallOn) {
  const at::Tensor position = torch::randn({4, 6});
  const auto function = [&](const Tensors& in) -> Tensors {
    return {in[0] * position.chunk(2, 1)[0] + position.narrow(1, 1, 3) + position.split(3, 1)[1]};
  };
  auto fast = compile(function);
  const c10::InferenceMode inference;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = torch::randn({4, 3});
    EXPECT_TRUE(at::equal(fast({x})[0], function({x})[0])) << "call " << i;
  }
  EXPECT_EQ(fast.stats().replays, 2u);
}

TEST_F(Compile, APartOfAModuleThatIsFrozenIsNoticed) {
  torch::nn::BatchNorm1d norm(4);
  torch::nn::Sequential net(torch::nn::Linear(4, 4), norm);
  auto fast = compile([&](const Tensors& in) -> Tensors { return {net->forward(in[0])}; }, {}, watch(net));
  const at::Tensor x = torch::randn({8, 4});
  for (int i = 0; i < 3; ++i) fast({x});
  norm->eval();
  EXPECT_TRUE(at::equal(fast({x})[0], net->forward(x)));
}

TEST_F(Compile, AnOutsideVersionIsBumpedByAReplay) {
  const at::Tensor counter = torch::zeros({1});
  auto fast = compile([&](const Tensors& in) -> Tensors {
    counter.add_(in[0]);
    return {};
  });
  for (int i = 0; i < 2; ++i) fast({torch::ones({1})});
  const auto before = counter._version();
  fast({torch::ones({1})});
  EXPECT_GT(counter._version(), before);
  EXPECT_EQ(counter.item<float>(), 3);
}

TEST_F(Compile, ErrorsOfAReplayAreEagersAndLeaveItUsable) {
  const at::Tensor table = torch::randn({5, 2});
  auto fast = compile([&](const Tensors& in) -> Tensors { return {at::embedding(table, in[0])}; });
  const at::Tensor good = torch::tensor({1, 4}), bad = torch::tensor({1, 9});
  for (int i = 0; i < 3; ++i) fast({good});
  EXPECT_THROW(fast({bad}), c10::IndexError);
  EXPECT_TRUE(at::equal(fast({good})[0], at::embedding(table, good)));
}

TEST_F(Compile, ARefusalThatTheFunctionItselfThrowsIsTheUsers) {
  auto fast = compile([](const Tensors&) -> Tensors { throw RecordError("somebody else's"); });
  EXPECT_THROW(fast({torch::ones({2})}), RecordError);
}

TEST_F(Compile, ManyThreadsGetRightAnswers) {
  auto net = small_net();
  auto fast = compile([&](const Tensors& in) -> Tensors { return {net->forward(in[0])}; });
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const torch::NoGradGuard no_grad;
      for (int i = 0; i < 25; ++i) {
        const at::Tensor x = torch::randn({1, 3, 8, 8});
        wrong += !at::equal(fast({x})[0], net->forward(x));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(fast.stats().replays, 0u);
}

// Another thread calls right when this one finds the recording stale.
TEST_F(Compile, WhatTwoThreadsFindStaleIsRecordedOnce) {
  at::Tensor weight = torch::ones({2});
  int until_replaced = 0;
  std::function<void()> meanwhile;
  const auto weights = [&]() -> Tensors {
    if (until_replaced > 0 && --until_replaced == 0) {
      weight = torch::full({2}, 3);
      std::thread(meanwhile).join();
    }
    return {weight};
  };
  auto fast = compile([&](const Tensors& in) -> Tensors { return {in[0] * weight}; }, {},
                      {.tensors = weights, .variant = {}});
  const auto call = [&] {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(fast({torch::ones({2})})[0], weight));
  };
  meanwhile = call;
  call();
  until_replaced = 2;  // it is looked at once to see whether a replay answers, then by whoever records
  call();
  EXPECT_EQ(fast.stats().recordings, 2u);
  EXPECT_EQ(fast.stats().eager_calls, 1u);
  call();
  call();
  EXPECT_EQ(fast.stats().replays, 1u);
}

TEST_F(Compile, AFunctionThatChangesOnTheHostIsNotFrozen) {
  int calls = 0;
  auto fast = compile([&](const Tensors& in) -> Tensors { return {in[0] + ++calls}; });
  for (int i = 1; i <= 8; ++i) EXPECT_EQ(fast({torch::zeros({1})})[0].item<float>(), static_cast<float>(i));
  EXPECT_EQ(fast.stats().replays, 0u);
}

TEST_F(Compile, OneInsideAnotherIsSeenThrough) {
  auto inner = compile([](const Tensors& in) -> Tensors { return {in[0].relu()}; });
  auto outer = compile([&](const Tensors& in) -> Tensors { return {inner(in)[0].exp()}; });
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = torch::randn({3});
    EXPECT_TRUE(at::equal(outer({x})[0], x.relu().exp()));
  }
  EXPECT_EQ(outer.stats().tasks, 2u);
  EXPECT_EQ(inner.stats().recordings, 0u);
}

TEST_F(Compile, EveryNumberOfStreamsGivesTheSameBits) {
  const auto function = [](const Tensors& in) -> Tensors {
    Tensors parts;
    for (int i = 1; i < 9; ++i) parts.push_back((in[0] * i).tanh().add(in[0]).sigmoid());
    return {torch::cat(parts)};
  };
  for (const std::size_t streams : {0, 1, 2, 3, 4}) {
    auto fast = compile(function, {.streams = streams});
    for (int i = 0; i < 20; ++i) {
      const at::Tensor x = torch::randn({33});
      EXPECT_TRUE(at::equal(fast({x})[0], function({x})[0])) << streams << " streams";
    }
    EXPECT_EQ(fast.stats().replays, 18u);
  }
}

// Two runs from the same seed, one of them compiled.
struct Training {
  std::vector<float> losses;
  Tensors parameters, gradients;
  Stats stats;
};

template <class Optimizer, class Options>
Training train(bool compiled, Options options, int steps, std::function<void(Optimizer&, int)> between = {}) {
  const torch::AutoGradMode grad(true);
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16), torch::nn::ReLU(),
                            torch::nn::Dropout(0.2), torch::nn::Linear(16, 3));
  Optimizer optimizer(net->parameters(), options);
  const TensorFunction step = [&](const Tensors& in) -> Tensors {
    optimizer.zero_grad();
    const at::Tensor loss = torch::cross_entropy_loss(net->forward(in[0]), in[1]);
    loss.backward();
    optimizer.step();
    return {loss};
  };
  auto fast = compile(step, {}, watch(net, optimizer));
  Training training;
  for (int i = 0; i < steps; ++i) {
    const Tensors batch = {torch::randn({8, 6}), torch::randint(3, {8})};
    training.losses.push_back((compiled ? fast(batch) : step(batch))[0].template item<float>());
    if (between) between(optimizer, i);
  }
  training.parameters = net->parameters();
  for (const auto& parameter : training.parameters) training.gradients.push_back(parameter.grad());
  training.stats = fast.stats();
  return training;
}

void expect_same(const Training& eager, const Training& compiled) {
  EXPECT_EQ(eager.losses, compiled.losses);
  for (std::size_t i = 0; i < eager.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(eager.parameters[i], compiled.parameters[i])) << "parameter " << i;
    EXPECT_TRUE(at::equal(eager.gradients[i], compiled.gradients[i])) << "gradient " << i;
  }
}

TEST_F(Compile, TrainsAWholeStepLikeEager) {
  using Sgd = torch::optim::SGD;
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  const auto eager = train<Sgd>(false, options, 20), compiled = train<Sgd>(true, options, 20);
  expect_same(eager, compiled);
  EXPECT_GE(compiled.stats.replays, 16u);
}

TEST_F(Compile, NoticesALearningRateThatChanges) {
  using Sgd = torch::optim::SGD;
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  const auto halve = [](Sgd& optimizer, int step) {
    if (step == 9) optimizer.param_groups()[0].options().set_lr(0.05);
  };
  expect_same(train<Sgd>(false, options, 20, halve), train<Sgd>(true, options, 20, halve));
}

TEST_F(Compile, AnOptimizerThatCountsItsStepsOnTheHostStaysEager) {
  using Adam = torch::optim::Adam;
  const torch::optim::AdamOptions options(0.01);
  const auto eager = train<Adam>(false, options, 12), compiled = train<Adam>(true, options, 12);
  expect_same(eager, compiled);
  EXPECT_EQ(compiled.stats.replays, 0u);
}

TEST_F(Compile, AFunctionWhoseResultsRequireGradTrainsThroughAutograd) {
  const torch::AutoGradMode grad(true);
  auto net = small_net();
  net->train();
  auto fast = compile([&](const Tensors& in) -> Tensors { return {net->forward(in[0])}; }, {}, watch(net));
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = torch::randn({2, 3, 8, 8}).requires_grad_();
    const auto gradients = [&](const at::Tensor& y) {
      return torch::autograd::grad({y.square().sum()}, {x, net->parameters()[0], net->parameters().back()});
    };
    const auto replayed = gradients(fast({x})[0]);
    const auto eager = gradients(net->forward(x));
    for (std::size_t g = 0; g < eager.size(); ++g) EXPECT_TRUE(at::equal(replayed[g], eager[g])) << i;
  }
  EXPECT_GE(fast.stats().replays, 4u);
}

TEST_F(Compile, ALossOfOtherResultsIsSaidWhereverSomebodyAsks) {
  const torch::AutoGradMode grad(true);
  auto fast = compile([](const Tensors& in) -> Tensors { return {in[0].exp(), in[0].sin()}; });
  const Tensors inputs = {torch::randn({3}).requires_grad_()};
  for (int i = 0; i < 4; ++i) fast(inputs)[0].sum().backward();
  ASSERT_GE(fast.stats().replays, 1u);
  EXPECT_THROW(fast(inputs)[1].sum().backward(), RecordError);
  const std::string why = "the loss used other results than when it was recorded";
  try {
    fast.prepare(inputs);
    ADD_FAILURE() << "it runs eagerly";
  } catch (const RecordError& error) {
    EXPECT_EQ(error.what(), "[nimble::prepare] " + why);
  }
  EXPECT_NE(fast.explain().find(why), std::string::npos) << fast.explain();
  EXPECT_NE(fast.report(inputs).find("\"reason\":\"" + why), std::string::npos) << fast.report(inputs);
}

// Eager has answered; what the check still wants to know is no matter of the user's.
TEST_F(Compile, ABackwardPassThatFailsWithinTheCheckIsNoFailureOfTheCall) {
  const torch::AutoGradMode grad(true);
  bool memory_is_full = false;
  auto fast = compile([&](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0].exp();
    y.register_hook([&](const at::Tensor&) { TORCH_CHECK(!memory_is_full, "out of memory"); });
    return {y * 2};
  });
  const Tensors inputs = {torch::randn({3}).requires_grad_()};
  fast(inputs);
  memory_is_full = true;
  const at::Tensor result = fast(inputs).at(0);
  memory_is_full = false;
  EXPECT_TRUE(at::equal(torch::autograd::grad({result.sum()}, inputs)[0], result));
  EXPECT_NE(fast.explain().find("out of memory"), std::string::npos) << fast.explain();
}

}  // namespace
}  // namespace nimble
