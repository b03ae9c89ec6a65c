// The frame that rewrites work in: names, checks, and recording anew.

#include <torch/library.h>

#include "nimble/core/error.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/edit.h"
#include "rewritten.h"

namespace nimble {
namespace {

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> names_of(const std::vector<const Rewrite*>& rewrites) {
  std::vector<std::string> names;
  for (const Rewrite* rewrite : rewrites) names.emplace_back(rewrite->name);
  return names;
}

using Registry = RewriteTest;

TEST_F(Registry, NoneIsNoRewriteAndDefaultIsAll) {
  EXPECT_TRUE(rewrites_named(std::vector<std::string>{"none"}).empty());
  EXPECT_EQ(rewrites_named(std::vector<std::string>{"default"}).size(), all_rewrites().size());
}

TEST_F(Registry, OneRewriteBringsThoseThatPrepareForItAndFinishItsWork) {
  EXPECT_EQ(names_of(rewrites_named(std::vector<std::string>{"fold_batch_norm"})),
            (std::vector<std::string>{"out_of_place", "fold_batch_norm", "weights_once"}));
}

TEST_F(Registry, AWrongNameIsRefusedWithTheNearest) {
  const std::string message = message_of([] { rewrites_named(std::vector<std::string>{"fold_batchnorm"}); });
  EXPECT_NE(message.find("no rewrite named \"fold_batchnorm\". The nearest are fold_batch_norm"),
            std::string::npos)
      << message;
}

using Checking = RewriteTest;

Program two_tasks() {
  return record({torch::randn({2, 3})}, [](const Tensors& in) -> Tensors { return {in[0].exp().neg()}; });
}

TEST_F(Checking, ARecordedProgramPasses) {
  const Program program = two_tasks();
  EXPECT_EQ(message_of([&] { check_program(program, program, "test"); }), "");
}

TEST_F(Checking, ReadingWhatNobodyWroteIsAnErrorThatNamesTheRewrite) {
  const Program program = two_tasks();
  Program broken = program;
  broken.tasks.erase(broken.tasks.begin());
  const std::string message = message_of([&] { check_program(broken, program, "my_rewrite"); });
  EXPECT_NE(message.find("my_rewrite"), std::string::npos);
  EXPECT_NE(message.find("neg#0 reads f32[2, 3] before anything was written there"), std::string::npos)
      << message;
}

TEST_F(Checking, ARefBeyondItsBufferIsAnError) {
  const Program program = two_tasks();
  Program broken = program;
  broken.tasks[1].reads[0].offset = 1;
  EXPECT_NE(message_of([&] { check_program(broken, program, "test"); }).find("beyond the end"),
            std::string::npos);
}

TEST_F(Checking, AResultOfAnotherShapeIsAnError) {
  const Program program = two_tasks();
  Program broken = program;
  broken.outputs[0].ref.sizes = {3, 2};
  EXPECT_NE(message_of([&] { check_program(broken, program, "test"); }).find("f32[3, 2]"), std::string::npos);
}

TEST_F(Checking, AMissingArgumentIsAnError) {
  const Program program = two_tasks();
  Program broken = program;
  broken.tasks[0].arguments.clear();
  EXPECT_NE(message_of([&] { check_program(broken, program, "test"); }).find("exp#0 takes 1 arguments"),
            std::string::npos);
}

TEST_F(Checking, AnArgumentOfAnotherTypeIsAnError) {
  const Program program = record({torch::randn({2, 3})}, [](const Tensors& in) -> Tensors {
    return {at::cat({at::softmax(in[0], 1), in[0]})};
  });
  const auto message_with = [&](std::size_t task, std::size_t argument, Operand operand) {
    Program broken = program;
    broken.tasks[task].arguments[argument] = std::move(operand);
    return message_of([&] { check_program(broken, program, "test"); });
  };
  EXPECT_NE(message_with(0, 1, c10::IValue("last")).find("was given a str for its argument dim"),
            std::string::npos);
  EXPECT_NE(message_with(0, 0, c10::IValue()).find("was given a NoneType for its argument self"),
            std::string::npos);
  EXPECT_NE(message_with(1, 0, program.inputs[0]).find("was given a Tensor for its argument tensors"),
            std::string::npos);
}

TEST_F(Checking, TruthIsANumberToo) {
  const Program program = record({torch::randn({2, 3})},
                                 [](const Tensors& in) -> Tensors { return {in[0].clone().fill_(true)}; });
  EXPECT_EQ(message_of([&] { check_program(program, program, "test"); }), "");
}

TEST_F(Checking, AResultThatIsMadeWhereAnotherLiesIsAnError) {
  const Program program = two_tasks();
  Program broken = program;
  for (TensorRef& ref : broken.tasks[1].writes) ref.buffer = broken.tasks[0].writes[0].buffer;
  broken.tasks[1].reads.clear();
  EXPECT_NE(
      message_of([&] { check_program(broken, program, "test"); }).find("where another task wrote before"),
      std::string::npos);
}

using RecordedAnew = RewriteTest;

TEST_F(RecordedAnew, GivesTheSameProgram) {
  const Tensors inputs = {torch::randn({2, 3, 8, 8})};
  const torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3));
  const Program program = record(inputs, [&](const Tensors& in) -> Tensors {
    auto module = conv;
    return {module(in[0]).relu_().flatten(1).sum(1)};
  });
  EXPECT_EQ(to_string(record_anew(program, inputs)), to_string(program));
}

TEST_F(RecordedAnew, PutsBackWhatTheRunChanges) {
  const at::Tensor counter = torch::zeros({3});
  const Tensors inputs = {torch::ones({3})};
  const Program program = record(inputs, [&](const Tensors& in) -> Tensors {
    counter.add_(in[0]);
    return {counter * 2};
  });
  counter.zero_();
  record_anew(program, inputs);
  EXPECT_TRUE(at::equal(counter, torch::zeros({3})));
}

// The convolution is replaced by one whose weights, and so its result, are channels last.
//   Everything behind it follows, and the result is copied into the layout that eager gave it.
TEST_F(RecordedAnew, LayoutsFollowAndResultsKeepTheirs) {
  const Tensors inputs = {torch::randn({1, 3, 6, 6})};
  const at::Tensor weight = torch::randn({4, 3, 3, 3});
  const Function function = [&](const Tensors& in) -> Tensors { return {at::conv2d(in[0], weight).relu()}; };
  Program program = record(inputs, function);
  const at::Tensor last = weight.contiguous(at::MemoryFormat::ChannelsLast);
  const BufferId buffer{static_cast<std::uint32_t>(program.buffers.size())};
  program.buffers.push_back({.kind = BufferKind::kExternal,
                             .bytes = last.storage().nbytes(),
                             .outside = last,
                             .address = last.mutable_data_ptr()});
  program.tasks[0].arguments[1] = describe(last, buffer);
  program.tasks[0].reads[1] = describe(last, buffer);
  const Program anew = record_anew(program, inputs);
  EXPECT_EQ(drawn(anew), R"(
%0 = convolution(input0, extern0)
%1 = relu(%0)
%2 = copy_(%2, %1)
return %2
)");
  EXPECT_EQ(anew.outputs[0].ref.strides, program.outputs[0].ref.strides);
  EXPECT_TRUE(at::allclose(run(anew, inputs)[0], function(inputs)[0], 1e-5, 1e-5));
}

TEST_F(RecordedAnew, RandomNumbersAreNotDrawnFromTheUser) {
  const Tensors inputs = {torch::randn({4})};
  const Program program =
      record(inputs, [](const Tensors& in) -> Tensors { return {in[0] + torch::randn({4})}; });
  torch::manual_seed(3);
  record_anew(program, inputs);
  const at::Tensor next = torch::randn({2});
  torch::manual_seed(3);
  EXPECT_TRUE(at::equal(next, torch::randn({2})));
}

using Applying = RewriteTest;

int runs_left = 0;

// Stands for a kernel that is found wanting only when everything runs for good.
at::Tensor exp_for_a_while(const at::Tensor& x) {
  TORCH_CHECK(runs_left-- > 0, "no kernel for this");
  return x.exp();
}

// A kernel of ours that lays its result out as nobody expects.
at::Tensor exp_transposed(const at::Tensor& x) { return x.exp().t().contiguous().t(); }

TORCH_LIBRARY_FRAGMENT(nimble, library) { library.def("exp_transposed(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(nimble, CPU, library) { library.impl("exp_transposed", exp_transposed); }

TORCH_LIBRARY(nimble_frame_test, library) { library.def("exp_for_a_while(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(nimble_frame_test, CPU, library) { library.impl("exp_for_a_while", exp_for_a_while); }

// On a GPU each rewrite is recorded without its convolutions, and the last result once more with them.
TEST_F(Applying, WhatCannotBeRecordedForGoodDropsAllRewritesAndSaysWhy) {
  const Rewrite exp_elsewhere{.name = "exp_elsewhere",
                              .summary = "exp(x) becomes exp_for_a_while(x)",
                              .apply = [](Program program, const RewriteContext&) {
                                Edit edit(program);
                                edit.replace(TaskId{0}, find_operator("nimble_frame_test::exp_for_a_while"),
                                             program.tasks[0].arguments, program.tasks[0].results);
                                Program changed = std::move(edit).finish();
                                return Rewritten{std::move(changed), {"exp#0"}};
                              }};
  const Program program = two_tasks();
  const Tensors inputs = {torch::randn({2, 3})};
  const RewriteContext like_a_gpu{.device = c10::Device(c10::kCUDA, 0)};
  const auto apply = [&] { return apply_rewrites(program, std::vector{&exp_elsewhere}, inputs, like_a_gpu); };
  runs_left = 2;
  const AppliedRewrites kept = apply();
  EXPECT_EQ(kept.program.tasks[0].op.operator_name().name, "nimble_frame_test::exp_for_a_while");
  EXPECT_EQ(kept.reports.at(0).dropped, "");
  EXPECT_FALSE(kept.exact);

  runs_left = 1;
  const AppliedRewrites dropped = apply();
  EXPECT_EQ(to_string(dropped.program), to_string(program));
  EXPECT_EQ(dropped.reports.at(0).dropped, "no kernel for this");
  EXPECT_TRUE(dropped.exact);
}

// A program that trains is not run, but kernels of ours are, alone.
TEST_F(Applying, InTrainingWhatAKernelGivesOtherwiseThanTheProgramSaysIsDropped) {
  const Rewrite transposed{.name = "transposed",
                           .summary = "exp(x) becomes exp_transposed(x)",
                           .for_training = true,
                           .apply = [](Program program, const RewriteContext&) {
                             Edit edit(program);
                             edit.replace(TaskId{0}, find_operator("nimble::exp_transposed"),
                                          program.tasks[0].arguments, program.tasks[0].results);
                             Program changed = std::move(edit).finish();
                             return Rewritten{std::move(changed), {"exp#0"}};
                           }};
  const Tensors inputs = {torch::randn({2, 3})};
  const Program program = two_tasks();
  const AppliedRewrites applied = apply_rewrites(program, std::vector{&transposed}, inputs, {.trains = true});
  EXPECT_EQ(to_string(applied.program), to_string(program));
  ASSERT_EQ(applied.reports.size(), 1u);
  EXPECT_NE(applied.reports[0].dropped.find("exp_transposed gives f32[2, 3]"), std::string::npos)
      << applied.reports[0].dropped;
}

using VersionsTest = RewriteTest;

TEST_F(VersionsTest, NoticeEveryWayToWrite) {
  const at::Tensor tensor = torch::zeros({3}), other = torch::zeros({3});
  Versions versions(Tensors{tensor, other});
  EXPECT_TRUE(versions.unchanged());
  tensor.add_(1);
  EXPECT_FALSE(versions.unchanged());
  versions.look();
  EXPECT_TRUE(versions.unchanged());
  other.slice(0, 0, 1).copy_(tensor.slice(0, 0, 1));
  EXPECT_FALSE(versions.unchanged());
}

TEST_F(VersionsTest, TensorsWithoutThemAreNoSources) {
  at::Tensor tensor;
  {
    const c10::InferenceMode inference;
    tensor = torch::zeros({3});
  }
  EXPECT_FALSE(counts_versions(tensor));
  EXPECT_TRUE(Versions(Tensors{tensor}).unchanged());
}

}  // namespace
}  // namespace nimble
