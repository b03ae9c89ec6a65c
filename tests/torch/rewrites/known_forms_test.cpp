// Which rewritten programs have to be run to see what came of them.

#include "nimble/torch/rewrites/known_forms.h"

#include <torch/library.h>

#include <random>

#include "cuda/forced.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

int counted = 0;

at::Tensor count(const at::Tensor& x) {
  ++counted;
  return x.clone();
}

TORCH_LIBRARY_FRAGMENT(nimble, library) { library.def("counted(Tensor x) -> Tensor", count); }
TORCH_LIBRARY_FRAGMENT(somebodys, library) { library.def("counted(Tensor x) -> Tensor", count); }

class KnownFormsTest : public RewriteTest {
 protected:
  // The program with `op` in the place of its last task, on the same tensors.
  static Program with_last(const Program& program, const char* op, std::vector<Operand> further = {}) {
    const TaskId last{static_cast<std::uint32_t>(program.tasks.size() - 1)};
    std::vector<Operand> arguments = {program.task(last).arguments[0]};
    arguments.insert(arguments.end(), further.begin(), further.end());
    Edit edit(program);
    edit.replace(last, find_operator(op), std::move(arguments), program.task(last).results);
    return std::move(edit).finish();
  }

  KnownForms forms_;
};

Program exp_neg(const at::Tensor& x) {
  return record({x}, [](const Tensors& in) -> Tensors { return {in[0].exp().neg()}; });
}

TEST_F(KnownFormsTest, TheSameTasksOnTheSameTensorsAreKnown) {
  const Program program = exp_neg(torch::randn({2, 3}));
  EXPECT_TRUE(forms_.are_as_said(program, program));
}

TEST_F(KnownFormsTest, ANewTaskThatLaysOutItsResultAsItSaysNeedsNoRecording) {
  const Program program = exp_neg(torch::randn({2, 3}));
  EXPECT_TRUE(forms_.are_as_said(with_last(program, "aten::sin"), program));
}

// The result is said to be contiguous, and follows its argument.
TEST_F(KnownFormsTest, AnotherLayoutHasToBeSeen) {
  const Program program =
      record({torch::randn({2, 3}).t()}, [](const Tensors& in) -> Tensors { return {in[0].contiguous()}; });
  ASSERT_EQ(operators(program), (std::vector<std::string>{"aten::clone"}));
  EXPECT_FALSE(forms_.are_as_said(with_last(program, "aten::sin"), program));
}

// The task stays what it was, but what it is given lies otherwise now.
TEST_F(KnownFormsTest, AnOldTaskOnATensorOfAnotherLayoutIsLookedAtAgain) {
  const Program program = exp_neg(torch::randn({2, 3}));
  Program changed = program;
  for (TensorRef* ref : {&std::get<TensorRef>(changed.tasks[1].arguments[0]), &changed.tasks[1].reads[0]}) {
    ref->strides = {1, 2};
  }
  EXPECT_FALSE(forms_.are_as_said(changed, program));
}

TEST_F(KnownFormsTest, AViewIsNoTask) {
  const Program program = exp_neg(torch::randn({2, 3}));
  EXPECT_FALSE(forms_.are_as_said(with_last(program, "aten::alias"), program));
}

TEST_F(KnownFormsTest, IndicesAreNotMadeUp) {
  const at::Tensor table = torch::randn({5, 3}), indices = torch::tensor({1, 4});
  const Program program = record(
      {table, indices}, [](const Tensors& in) -> Tensors { return {at::embedding(in[0], in[1]).neg()}; });
  Program changed = program;
  changed.tasks[0].arguments[2] = c10::IValue(0);  // another padding index
  EXPECT_FALSE(forms_.are_as_said(changed, program));
}

TEST_F(KnownFormsTest, NothingIsDrawnFromTheUsersGenerator) {
  const Program program = exp_neg(torch::rand({2, 3}));
  torch::manual_seed(3);
  EXPECT_FALSE(forms_.are_as_said(with_last(program, "aten::bernoulli", {c10::IValue()}), program));
  const at::Tensor next = torch::randn({2});
  torch::manual_seed(3);
  EXPECT_TRUE(at::equal(next, torch::randn({2})));
}

// Others may assert something of their values, which on a GPU ends more than the task.
TEST_F(KnownFormsTest, OnlyOperatorsThatTakeAnyValuesAreTried) {
  const Program program = exp_neg(torch::randn({2, 3}));
  EXPECT_FALSE(
      forms_.are_as_said(with_last(program, "aten::cumsum", {c10::IValue(0), c10::IValue()}), program));
}

TEST_F(KnownFormsTest, SomebodysOwnOperatorIsNotTried) {
  const Program program = exp_neg(torch::randn({2, 3}));
  counted = 0;
  EXPECT_FALSE(forms_.are_as_said(with_last(program, "somebodys::counted"), program));
  EXPECT_EQ(counted, 0);
}

// A task that packs its weights at its first run would keep those that were made up.
TEST_F(KnownFormsTest, NothingIsPackedThatWasMadeUp) {
  const at::Tensor x = torch::randn({1, 3, 8, 8}), weight = torch::randn({4, 3, 3, 3});
  const Function function = [&](const Tensors& in) -> Tensors { return {at::conv2d(in[0], weight).relu()}; };
  const Program packed = rewritten(function, {x}, {"mkldnn_convolution"});
  ASSERT_EQ(operators(packed).front(), "nimble::mkldnn_convolution");
  EXPECT_FALSE(forms_.are_as_said(packed, record({x}, function)));
  expect_same(packed, function, {x});
}

TEST_F(KnownFormsTest, OneOfAKindIsTried) {
  const Program program = record({torch::randn({2, 3})}, [](const Tensors& in) -> Tensors {
    return {in[0].exp(), in[0].neg(), in[0].t().sin()};
  });
  Edit edit(program);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Task& task = program.task(TaskId{i});
    edit.replace(TaskId{i}, find_operator("nimble::counted"), task.arguments, task.results);
  }
  const Program changed = std::move(edit).finish();
  counted = 0;
  EXPECT_TRUE(forms_.are_as_said(changed, program));
  EXPECT_TRUE(forms_.are_as_said(changed, program));
  EXPECT_EQ(counted, 2);  // of two shapes
}

// Recording behind each rewrite or where it can show something: the same rewrites fire at the same places,
// and the same program comes of them.
class RecordingWhereNeeded : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { torch::manual_seed(GetParam()); }

  static AppliedRewrites applied(const Program& program, const Tensors& inputs, bool record_each) {
    std::vector<Rewrite> rewrites;
    for (const Rewrite* rewrite : all_rewrites()) {
      if (!rewrite->on_cuda) continue;
      rewrites.push_back(*rewrite);
      rewrites.back().on_cpu = true;
    }
    std::vector<const Rewrite*> pointers;
    for (const Rewrite& rewrite : rewrites) pointers.push_back(&rewrite);
    return apply_rewrites(program, pointers, inputs, {.record_each = record_each});
  }

  torch::NoGradGuard no_grad_;
};

// What its tasks do, in which numbers, shapes and layouts: all but the numbers of buffers.
std::string described(const Program& program) {
  std::string text;
  for (const Task& task : program.tasks) {
    text += describe_tasks({&task, 1});
    for (const TensorRef& ref : task.writes) text += ' ' + to_string(ref);
    text += '\n';
  }
  return text;
}

// Blocks of branches that meet in a concatenation or a sum, with batch norms, activations and pooling.
torch::nn::Sequential random_layer(std::mt19937& random, int in, int out) {
  namespace nn = torch::nn;
  const auto choice = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  nn::Sequential layers;
  const int kind = choice(4);
  if (kind == 0) {
    layers->push_back(nn::ReLU());
    layers->push_back(nn::Conv2d(nn::Conv2dOptions(in, in, 3).padding(1).groups(in).bias(false)));
  }
  if (kind == 1) layers->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(1).padding(1)));
  if (kind == 2) layers->push_back(nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(1).padding(1)));
  const int size = choice(2) ? 3 : 1;
  layers->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, size).padding(size / 2).bias(choice(2) == 0)));
  if (choice(3) > 0) layers->push_back(nn::BatchNorm2d(out));
  if (choice(3) > 0) layers->push_back(nn::ReLU(nn::ReLUOptions().inplace(choice(2) == 0)));
  if (choice(4) == 0) layers->push_back(nn::SiLU());
  layers->eval();
  return layers;
}

TEST_P(RecordingWhereNeeded, GivesTheSameProgram) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  constexpr int kChannels = 8;
  std::vector<torch::nn::Sequential> layers;
  for (int i = 0; i < 9; ++i) layers.push_back(random_layer(random, kChannels, kChannels));
  const bool concatenates = random() % 2 == 0;
  torch::nn::Sequential join = random_layer(random, 3 * kChannels, kChannels);
  torch::nn::Linear last(kChannels, 5);
  const Tensors inputs = {torch::randn({1, kChannels, 9, 9})};
  const Function function = [&](const Tensors& in) -> Tensors {
    at::Tensor x = in[0];
    for (std::size_t i = 0; i < layers.size(); i += 3) {
      const Tensors branches = {layers[i]->forward(x), layers[i + 1]->forward(x), layers[i + 2]->forward(x)};
      x = concatenates ? join->forward(at::cat(branches, 1).relu())
                       : (branches[0] + branches[1]).relu() + branches[2];
    }
    return {last(x.mean({2, 3})).softmax(1)};
  };
  const Program program = record(inputs, function);
  const AppliedRewrites each = applied(program, inputs, true), needed = applied(program, inputs, false);
  EXPECT_EQ(drawn(needed.program), drawn(each.program));
  EXPECT_EQ(described(needed.program), described(each.program));
  ASSERT_EQ(needed.reports.size(), each.reports.size());
  for (std::size_t i = 0; i < each.reports.size(); ++i) {
    EXPECT_EQ(needed.reports[i].name, each.reports[i].name);
    EXPECT_EQ(needed.reports[i].sites, each.reports[i].sites) << each.reports[i].name;
    EXPECT_EQ(needed.reports[i].dropped, "");
  }
  expect_same(needed.program, function, inputs);
}

INSTANTIATE_TEST_SUITE_P(RandomNetworks, RecordingWhereNeeded, ::testing::Range(0, 24));

}  // namespace
}  // namespace nimble
