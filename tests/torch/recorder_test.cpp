#include <ATen/ThreadLocalState.h>
#include <gtest/gtest.h>

#include <thread>

#include "recorded.h"

namespace nimble {
namespace {

TEST(Recorder, ViewsVanish) {
  const Program program = record({torch::randn({2, 3, 4})}, [](const Tensors& in) -> Tensors {
    return {in[0].transpose(0, 1).reshape({3, 8}).unsqueeze(0).slice(2, 1, 5).relu()};
  });
  EXPECT_EQ(operators(program),
            (std::vector<std::string>{"aten::clone", "aten::relu"}));  // reshape had to copy
}

TEST(Recorder, SeesTheSameOperatorsInEveryMode) {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::ReLU(), torch::nn::Flatten(),
                            torch::nn::Linear(64, 2));
  const at::Tensor x = torch::randn({1, 3, 6, 6});
  const auto run = [&](const Tensors& in) -> Tensors { return {net->forward(in[0])}; };
  std::vector<std::string> with_no_grad, with_inference_mode;
  {
    const torch::NoGradGuard guard;
    with_no_grad = operators(record({x}, run));
  }
  {
    const c10::InferenceMode guard;
    with_inference_mode = operators(record({x}, run));
  }
  EXPECT_EQ(with_no_grad, with_inference_mode);
  EXPECT_EQ(with_no_grad, (std::vector<std::string>{"aten::convolution", "aten::relu", "aten::addmm"}));
}

TEST(Recorder, SeesAWholeTrainingStepBelowAutograd) {
  torch::nn::Linear net(4, 2);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  std::vector<std::string> seen;
  cpu_backend().watch_allocations();
  const at::Tensor x = torch::randn({3, 4});
  ProgramBuilder builder(Tensors{x}, ProgramBuilder::OnRefusal::kRemember);
  {
    const DispatchModeGuard mode(builder);
    optimizer.zero_grad();
    net->forward(x).square().mean().backward();
    optimizer.step();
  }
  EXPECT_FALSE(builder.refusal());
  const Tensors kept = {net->weight.grad(), net->bias.grad()};
  const Program program = builder.finish({}, kept);
  const auto names = operators(program);
  EXPECT_NE(std::find(names.begin(), names.end(), "aten::addmm"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "aten::mean"), names.end());
  EXPECT_EQ(std::count(names.begin(), names.end(), "aten::add_"), 2);  // one update for each parameter
}

TEST(Recorder, TasksBelongToTheModuleThatTheHostNames) {
  const at::Tensor x = torch::randn({3, 4}), weight = torch::randn({4, 4}).requires_grad_();
  ProgramBuilder builder(Tensors{x}, ProgramBuilder::OnRefusal::kThrow);
  {
    const DispatchModeGuard mode(builder);
    builder.set_module("encoder.0");
    const at::Tensor hidden = x.mm(weight);
    builder.set_module("decoder");
    const at::Tensor result = hidden.sigmoid();
    builder.set_module("");
    result.sum().backward();
  }
  const Program program = builder.finish({}, Tensors{weight.grad()});
  const auto origin = [&](const std::string& op, bool backward) -> std::string {
    for (const Task& task : program.tasks) {
      if (task.op.operator_name().name == op && task.node.empty() != backward) return task.module;
    }
    return "no such task";
  };
  EXPECT_EQ(origin("aten::mm", /*backward=*/false), "encoder.0");
  EXPECT_EQ(origin("aten::sigmoid", /*backward=*/false), "decoder");
  EXPECT_EQ(origin("aten::sum", /*backward=*/false), "");
  EXPECT_EQ(origin("aten::sigmoid_backward", /*backward=*/true), "decoder");
  EXPECT_EQ(origin("aten::mm", /*backward=*/true), "encoder.0");
}

TEST(Recorder, RefusesItemByName) {
  try {
    record({torch::randn({1})}, [](const Tensors& in) -> Tensors { return {in[0] * in[0].item<float>()}; });
    FAIL() << "was not refused";
  } catch (const RecordError& error) {
    EXPECT_NE(std::string(error.what()).find("aten::_local_scalar_dense"), std::string::npos) << error.what();
  }
}

TEST(Recorder, RefusesShapesThatDependOnData) {
  const auto refused = [](const std::function<at::Tensor(at::Tensor)>& f) {
    EXPECT_THROW(record({torch::randn({4})}, [&](const Tensors& in) -> Tensors { return {f(in[0])}; }),
                 RecordError);
  };
  refused([](const at::Tensor& x) { return x.nonzero(); });
  refused([](const at::Tensor& x) { return x.masked_select(x > 0); });
  refused([](const at::Tensor& x) { return x.index({x > 0}); });
}

TEST(Recorder, AllowsIndexingByNumbers) {
  const at::Tensor index = torch::tensor({2, 0});
  const Program program =
      record({torch::randn({4})}, [&](const Tensors& in) -> Tensors { return {in[0].index({index})}; });
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::index"}));
}

TEST(Recorder, RefusesSparseTensors) {
  EXPECT_THROW(
      record({torch::eye(3)}, [](const Tensors& in) -> Tensors { return {in[0].to_sparse().to_dense()}; }),
      RecordError);
}

// A kernel that bypasses the dispatcher may have filled it; a replay would return whatever is in memory.
TEST(Recorder, RefusesAResultThatNoOperatorFilled) {
  EXPECT_THROW(record({torch::randn({4})}, [](const Tensors&) -> Tensors { return {torch::empty({4})}; }),
               RecordError);
  EXPECT_NO_THROW(record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    at::Tensor out = torch::empty({4});
    out.copy_(in[0]);
    return {out};
  }));
}

// The same where an operator reads it: a replay would compute with what the recording left there.
TEST(Recorder, RefusesToReadMemoryThatNoOperatorFilled) {
  const auto refused = [](const std::function<at::Tensor(at::Tensor, at::Tensor)>& f) {
    ProgramBuilder builder(Tensors{torch::randn({4})}, ProgramBuilder::OnRefusal::kRemember);
    at::Tensor result;
    {
      const DispatchModeGuard mode(builder);
      result = f(torch::randn({4}), torch::empty({4}));
    }
    builder.finish(Tensors{result});
    return builder.refusal() ? builder.refusal()->what : "";
  };
  using at::Tensor;
  EXPECT_EQ(refused([](Tensor x, Tensor memory) { return x + memory; }), "aten::add");
  EXPECT_EQ(refused([](Tensor, Tensor memory) { return memory.relu_(); }), "aten::relu_");
  EXPECT_EQ(refused([](Tensor x, Tensor memory) { return at::cat({x, memory}); }), "aten::cat");
  EXPECT_EQ(refused([](Tensor x, Tensor memory) { return x.copy_(memory.slice(0, 0, 2).repeat({2})); }),
            "aten::repeat");
  EXPECT_EQ(refused([](Tensor, Tensor memory) { return memory.clone().to(at::kDouble).exp(); }), "aten::exp");
  EXPECT_EQ(refused([](Tensor, Tensor memory) { return memory.clone(); }), "aten::empty");
}

TEST(Recorder, AllowsUnfilledMemoryOfWhichNoValueIsAsked) {
  const auto allowed = [](const std::function<at::Tensor(at::Tensor, at::Tensor)>& f) {
    EXPECT_NO_THROW(record({torch::randn({4, 4})}, [&](const Tensors& in) -> Tensors {
      return {f(in[0], torch::empty({4, 4})).relu()};
    }));
  };
  using at::Tensor;
  allowed([](Tensor x, Tensor memory) { return x + at::zeros_like(memory) + memory.new_ones({4}); });
  allowed([](Tensor x, Tensor memory) { return memory.copy_(x).add_(1); });
  allowed([](Tensor, Tensor memory) { return memory.uniform_(); });
  allowed([](Tensor, Tensor memory) { return at::bernoulli(memory, 0.5); });
  allowed([](Tensor x, Tensor memory) { return at::mul_out(memory, x, x); });
  allowed([](Tensor x, Tensor memory) { return memory.t().clone().to(at::kDouble).fill_(2) * x; });
  allowed([](Tensor x, Tensor memory) { return at::addmm(memory, x, x, /*beta=*/0); });
  allowed([](Tensor x, Tensor memory) { return memory.slice_scatter(x, 0, 0, 4); });
  allowed([](Tensor x, Tensor memory) {
    memory.select(0, 0).copy_(x.select(0, 0));
    return memory.select(0, 0);
  });
  allowed([](Tensor x, Tensor) { return at::cat({x, torch::empty({0, 4})}); });
}

TEST(Recorder, RefusesAnEscapeWithNoPlace) {
  std::vector<at::Tensor> kept_by_the_user;
  EXPECT_THROW(record({torch::randn({4})},
                      [&](const Tensors& in) -> Tensors {
                        kept_by_the_user.push_back(in[0].exp());
                        return {in[0].relu()};
                      }),
               RecordError);
}

TEST(Recorder, RememberedRefusalLetsTheFunctionRunOn) {
  const at::Tensor x = torch::tensor({1.f, -1.f});
  ProgramBuilder builder(Tensors{x}, ProgramBuilder::OnRefusal::kRemember);
  float sum = 0;
  {
    const DispatchModeGuard mode(builder);
    sum = x.relu().sum().item<float>() + 1;
  }
  EXPECT_EQ(sum, 2);
  ASSERT_TRUE(builder.refusal());
  EXPECT_EQ(builder.refusal()->what, "aten::_local_scalar_dense");
}

TEST(Recorder, AnOutArgumentHasItsFinalShapeFromTheStart) {
  const Program program = record({torch::randn({3, 3})}, [](const Tensors& in) -> Tensors {
    at::Tensor out = torch::empty({0});
    at::mm_out(out, in[0], in[0]);
    return {out.relu()};
  });
  ASSERT_EQ(operators(program), (std::vector<std::string>{"aten::mm", "aten::relu"}));
  EXPECT_EQ(program.tasks[0].writes.at(0).numel(), 9);
}

// As those of TorchScript's fork do.
TEST(Recorder, SeesWhatOtherThreadsDoUnderItsState) {
  constexpr int kCalls = 200;
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    const auto chain = [&](const at::Tensor& x) {
      at::Tensor y = x;
      for (int i = 0; i < kCalls; ++i) y = y.sin();
      return y;
    };
    const at::ThreadLocalState state;
    at::Tensor theirs;
    std::thread another([&] {
      const at::ThreadLocalStateGuard same(state);
      theirs = chain(in[0]);
    });
    const at::Tensor ours = chain(in[0]);
    another.join();
    return {ours + theirs};
  });
  EXPECT_EQ(program.tasks.size(), 2 * kCalls + 1);
}

TEST(Recorder, PrintsOneLineForEachTask) {
  const Program program =
      record({torch::randn({2, 3})}, [](const Tensors& in) -> Tensors { return {in[0].relu().exp()}; });
  const std::string text = to_string(program);
  EXPECT_NE(text.find("relu#0(input0:f32[2, 3])"), std::string::npos) << text;
  EXPECT_NE(text.find("exp#1("), std::string::npos) << text;
}

TEST(Recorder, ExceptionsOfTheFunctionLeaveNothingBehind) {
  EXPECT_THROW(
      record({torch::randn({2})}, [](const Tensors&) -> Tensors { throw std::runtime_error("mine"); }),
      std::runtime_error);
  EXPECT_EQ(operators(record({torch::randn({2})}, [](const Tensors& in) -> Tensors { return {in[0].exp()}; }))
                .size(),
            1u);
}

}  // namespace
}  // namespace nimble
