#include <random>

#include "forced.h"
#include "nimble/core/schedule.h"
#include "nimble/torch/outside_state.h"
#include "nimble/torch/rewrites/same_alone.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

using Scalars = std::vector<at::Scalar>;

const RewriteContext kTrainingOnAGpu{.device = c10::Device(c10::kCUDA, 0), .trains = true};

AppliedRewrites trained(const Program& program, const Tensors& inputs) {
  const std::vector<std::string> names = {"fuse_foreach"};
  AppliedRewrites applied = apply_rewrites(program, rewrites_named(names), inputs, kTrainingOnAGpu);
  for (const RewriteReport& report : applied.reports) EXPECT_EQ(report.dropped, "") << report.name;
  EXPECT_TRUE(applied.exact);
  return applied;
}

std::size_t kernels_in(const Program& program) {
  return std::ranges::count(operators(program), "nimble::foreach_pointwise");
}

void replay(const Program& program, const Tensors& inputs, std::size_t streams = 1) {
  Backend& backend = cpu_backend();
  MemoryDemand memory = memory_demand(program, backend.alignment());
  TaskGraph graph = dependencies(program);
  Schedule schedule = plan(graph, memory.specs, StreamLimit::at_most(streams));
  const auto executable = backend.bind(
      {std::make_shared<const Program>(program), std::move(graph), std::move(memory), std::move(schedule)},
      {.example_inputs = inputs});
  executable->replay(inputs);
}

// Lists of two tensors, as an optimizer has them: parameters p, gradients g, and its state. So many numbers
// that a trial tells how they are rounded.
Tensors list(bool positive = false) {
  Tensors tensors = {torch::randn({70, 60}), torch::randn({4})};
  for (at::Tensor& tensor : tensors) tensor = positive ? tensor.abs() : tensor;
  return tensors;
}
Tensors numbers() { return {torch::rand({}) + 1, torch::rand({}) + 1}; }

class FuseForeach : public RewriteTest {
 protected:
  using Update = std::function<void()>;

  Program recorded(const Update& update) {
    return record({}, [&](const Tensors&) -> Tensors {
      update();
      return {};
    });
  }

  // How the rewritten update looks, and that it does what the update itself does, to the last bit.
  void expect_drawn(const Update& update, const std::string& picture) {
    const Program program = recorded(update);
    const Program fused = trained(program, {}).program;
    EXPECT_EQ(drawn(fused), picture);
    expect_bits(fused, update);
  }
  void expect_unchanged(const Update& update) {
    const Program program = recorded(update);
    const AppliedRewrites applied = trained(program, {});
    EXPECT_TRUE(applied.reports.empty());
    EXPECT_EQ(to_string(applied.program), to_string(program));
  }
  void expect_bits(const Program& fused, const Update& update) {
    const Tensors before = copies();
    update();
    const Tensors expected = copies();
    put_back(before);
    replay(fused, {});
    const Tensors given = copies();
    for (std::size_t i = 0; i < given.size(); ++i) EXPECT_TRUE(same_bits(given[i], expected[i])) << i;
  }

  Tensors copies() const {
    Tensors all;
    for (const Tensors* tensors : {&p_, &g_, &m_, &v_, &c_}) {
      for (const at::Tensor& tensor : *tensors) all.push_back(tensor.clone());
    }
    return all;
  }
  void put_back(const Tensors& values) {
    std::size_t next = 0;
    for (const Tensors* tensors : {&p_, &g_, &m_, &v_, &c_}) {
      for (const at::Tensor& tensor : *tensors) tensor.copy_(values[next++]);
    }
  }

  void become(at::ScalarType type) {
    for (Tensors* tensors : {&p_, &g_, &m_}) {
      for (at::Tensor& tensor : *tensors) tensor = tensor.to(type);
    }
  }
  void momentum() {
    at::_foreach_mul_(m_, 0.9);
    at::_foreach_add_(m_, g_, 1);
    at::_foreach_add_(p_, m_, -0.1);
  }

  Tensors p_ = list(), g_ = list(), m_ = list(), v_ = list(true), c_ = numbers();
};

// Before, with p, g and m of two tensors each:
//   _foreach_mul_(m)
//   _foreach_add_(m, g)
//   _foreach_add_(p, m)
TEST_F(FuseForeach, MomentumBecomesOneKernel) {
  expect_drawn([this] { momentum(); }, R"(
 = nimble::foreach_pointwise(extern0, extern1, extern2, extern3, extern4, extern5)
return
)");
}

TEST_F(FuseForeach, ListsThatAreMadeInBetweenVanish) {
  expect_drawn(
      [this] {
        const Tensors decayed = at::_foreach_add(g_, p_, 0.01);
        at::_foreach_mul_(m_, 0.9);
        at::_foreach_add_(m_, decayed, 1);
        at::_foreach_add_(decayed, m_, 0.9);  // nesterov
        at::_foreach_add_(p_, decayed, -0.1);
      },
      R"(
 = nimble::foreach_pointwise(extern0, extern1, extern2, extern3, extern4, extern5)
return
)");
}

TEST_F(FuseForeach, ListsThatOthersReadTooAreMadeByTheSameKernel) {
  const at::Tensor sum = torch::zeros({4});
  expect_drawn(
      [&] {
        const Tensors decayed = at::_foreach_add(g_, p_, 0.01);
        at::_foreach_mul_(m_, 0.9);
        at::_foreach_add_(m_, decayed, 1);
        sum.add_(decayed[1]);
      },
      R"(
%0, %1 = nimble::foreach_pointwise(extern0, extern1, extern2, extern3, extern4, extern5)
extern6 = add_(extern6, %1)
return
)");
}

// Adam with capturable=True. Powers stay, and so does a division of so few numbers.
TEST_F(FuseForeach, AdamBecomesOneKernelAndOneForItsSecondCorrection) {
  const auto adam = [this] {
    at::_foreach_add_(c_, 1);
    at::_foreach_lerp_(m_, g_, 0.1);
    at::_foreach_mul_(v_, 0.999);
    at::_foreach_addcmul_(v_, g_, g_, 0.001);
    const Tensors first = at::_foreach_pow(0.9, c_), second = at::_foreach_pow(0.999, c_);
    at::_foreach_sub_(first, 1);
    at::_foreach_sub_(second, 1);
    at::_foreach_neg_(second);
    at::_foreach_div_(first, 0.01);
    at::_foreach_reciprocal_(first);
    at::_foreach_sqrt_(second);
    const Tensors root = at::_foreach_sqrt(v_);
    at::_foreach_div_(root, second);
    at::_foreach_add_(root, 1e-8);
    at::_foreach_div_(root, first);
    at::_foreach_addcdiv_(p_, m_, root);
  };
  expect_drawn(adam, R"(
 = _foreach_add_(extern0, extern1)
%0, %1 = _foreach_pow(extern0, extern1)
%2, %3 = _foreach_pow(extern0, extern1)
 = _foreach_sub_(%0, %1)
 = _foreach_div_(%0, %1)
 = _foreach_reciprocal_(%0, %1)
 = nimble::foreach_pointwise(%2, %3)
 = nimble::foreach_pointwise(extern2, extern3, extern4, extern5, extern6, extern7, extern8, extern9, %2, %3, %0, %1)
return
)");
}

TEST_F(FuseForeach, SoDoRmspropAndAdagrad) {
  expect_drawn(
      [this] {
        at::_foreach_mul_(v_, 0.99);
        at::_foreach_addcmul_(v_, g_, g_, 0.01);
        const Tensors root = at::_foreach_sqrt(v_);
        at::_foreach_add_(root, 1e-8);
        at::_foreach_addcdiv_(p_, g_, root, -0.01);
      },
      R"(
 = nimble::foreach_pointwise(extern0, extern1, extern2, extern3, extern4, extern5)
return
)");
  expect_drawn(
      [this] {
        at::_foreach_addcmul_(v_, g_, g_, 1);
        const Tensors root = at::_foreach_sqrt(v_);
        at::_foreach_add_(root, 1e-10);
        const Tensors rates = at::_foreach_mul(g_, Scalars{-0.1, -0.1});
        at::_foreach_addcdiv_(p_, rates, root);
      },
      R"(
 = nimble::foreach_pointwise(extern0, extern1, extern2, extern3, extern4, extern5)
return
)");
}

TEST_F(FuseForeach, ANumberOnTheDeviceIsReadByEveryTensor) {
  const at::Tensor rate = torch::tensor(-0.1f);
  expect_drawn(
      [&] {
        at::_foreach_mul_(m_, 0.9);
        at::_foreach_add_(m_, g_, 1);
        const Tensors update = at::_foreach_mul(m_, rate);
        at::_foreach_maximum_(update, g_);
        at::_foreach_add_(p_, update);
      },
      R"(
 = nimble::foreach_pointwise(extern0, extern1, extern2, extern3, extern4, extern5, extern6, extern6)
return
)");
}

// Large lists are cut into stretches when they are recorded.
TEST_F(FuseForeach, EachStretchIsAKernelOfItsOwnAlsoIfTheyLookAlike) {
  const Tensors p = list(), g = list(), m = list();
  const auto update = [&] {
    at::_foreach_mul_(m_, 0.9);
    at::_foreach_mul_(m, 0.9);
    at::_foreach_add_(m_, g_, 1);
    at::_foreach_add_(m, g, 1);
    at::_foreach_add_(p_, m_, -0.1);
    at::_foreach_add_(p, m, -0.1);
  };
  expect_drawn(update, R"(
 = nimble::foreach_pointwise(extern0, extern1, extern2, extern3, extern4, extern5)
 = nimble::foreach_pointwise(extern6, extern7, extern8, extern9, extern10, extern11)
return
)");
}

TEST_F(FuseForeach, ListsThatAreReturnedAreMadeByTheSameKernel) {
  const Function function = [](const Tensors& in) -> Tensors {
    const Tensors halves = at::_foreach_mul(in, 0.5);
    return at::_foreach_add(halves, in, 2);
  };
  const Forced fused = forced(function, {torch::randn({70, 60}), torch::randn({4})}, kFuseForeach);
  EXPECT_EQ(drawn(fused.program), R"(
%0, %1 = nimble::foreach_pointwise(input0, input1)
return %0 %1
)");
  expect_same(fused.program, function, {torch::randn({70, 60}), torch::randn({4})}, 0);
}

TEST_F(FuseForeach, EveryFloatingType) {
  const auto update = [this] {
    at::_foreach_add_(m_, g_, 0.5);
    at::_foreach_add_(p_, m_, -0.1);
  };
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    become(type);
    const Program fused = trained(recorded(update), {}).program;
    EXPECT_EQ(kernels_in(fused), 1u) << type;
    expect_bits(fused, update);
  }
}

// On the host ATen multiplies half precision by a number otherwise in place than out of place, which our
// operator is made of there.
TEST_F(FuseForeach, NotWhereATrialGivesOtherBits) {
  become(at::kBFloat16);
  expect_unchanged([this] { momentum(); });
}

TEST_F(FuseForeach, NotAcrossSomebodyWhoReadsOrWritesAListInBetween) {
  const at::Tensor sum = torch::zeros({4});
  expect_unchanged([&] {
    at::_foreach_mul_(m_, 0.9);
    sum.add_(m_[1]);
    at::_foreach_add_(m_, g_, 1);
  });
  expect_unchanged([&] {
    at::_foreach_mul_(m_, 0.9);
    m_[0].add_(1);
    at::_foreach_add_(m_, g_, 1);
  });
  expect_unchanged([&] {
    at::_foreach_add_(m_, g_, 1);
    g_[0].zero_();
    at::_foreach_add_(p_, m_, -0.1);
  });
  expect_drawn(
      [&] {
        at::_foreach_mul_(m_, 0.9);
        sum.add_(v_[1]);  // has nothing to do with them
        at::_foreach_add_(m_, g_, 1);
      },
      R"(
extern0 = add_(extern0, extern1)
 = nimble::foreach_pointwise(extern2, extern3, extern4, extern5)
return
)");
}

TEST_F(FuseForeach, NotListsOfDifferentLengthsOrInAnotherOrder) {
  expect_unchanged([this] {
    at::_foreach_mul_(m_, 0.9);
    at::_foreach_add_(m_[0], 1);
  });
  const Tensors a = {torch::randn({4}), torch::randn({4})}, swapped = {a[1], a[0]};
  expect_unchanged([&] {
    at::_foreach_mul_(a, 0.9);
    at::_foreach_add_(swapped, 1);
  });
  expect_unchanged([&] {
    const Tensors first = {a[0]};
    at::_foreach_mul_(a, 0.9);
    at::_foreach_add_(first, 1);
  });
}

TEST_F(FuseForeach, NotListsThatShareMemory) {
  const at::Tensor whole = torch::randn({8});
  const Tensors low = {whole.slice(0, 0, 5)}, high = {whole.slice(0, 3, 8)}, apart = {whole.slice(0, 5, 8)},
                start = {whole.slice(0, 0, 3)};
  const Tensors other = {torch::randn({5})};
  expect_unchanged([&] {
    at::_foreach_add_(low, other, 1);
    at::_foreach_add_(high, other, 1);
  });
  expect_unchanged([&] {
    at::_foreach_mul_(low, other);
    at::_foreach_add_(other, high, 1);
  });
  const Tensors twice = {whole, whole};
  expect_unchanged([&] {
    at::_foreach_mul_(twice, 0.9);
    at::_foreach_add_(twice, 1);
  });
  const Program program = recorded([&] {
    at::_foreach_mul_(start, 0.9);
    at::_foreach_add_(start, apart, 1);
  });
  EXPECT_EQ(kernels_in(trained(program, {}).program), 1u) << "slices of one buffer that are apart";
}

TEST_F(FuseForeach, NotTensorsThatAreLaidOutDifferently) {
  const Tensors a = {torch::randn({4, 3})}, transposed = {torch::randn({3, 4}).t()},
                gaps = {torch::randn({4, 6}).slice(1, 0, 6, 2)}, half = {torch::randn({4, 3}).to(at::kHalf)},
                whole = {torch::ones({4, 3}, at::kLong)};
  for (const Tensors& other : {transposed, gaps, half}) {
    expect_unchanged([&] {
      at::_foreach_mul_(other, 2);
      at::_foreach_add_(a, other, 1);
    });
  }
  expect_unchanged([&] {
    at::_foreach_mul_(whole, 2);
    at::_foreach_add_(whole, 1);
  });
}

TEST_F(FuseForeach, NotSeveralNumbersOfTheHost) {
  expect_unchanged([this] {
    at::_foreach_addcdiv_(p_, m_, v_, Scalars{-0.1, -0.2});
    at::_foreach_div_(p_, Scalars{0.1, 0.2});
  });
}

TEST_F(FuseForeach, NotWhatNobodyEverLooksAt) {
  expect_unchanged([this] {
    const Tensors sums = at::_foreach_add(p_, g_, 1);
    at::_foreach_mul_(sums, 0.5);
  });
}

TEST_F(FuseForeach, NotFunctionsWithoutAKernel) {
  expect_unchanged([this] {
    at::_foreach_exp_(m_);
    at::_foreach_mul_(m_, 0.9);
    at::_foreach_tanh_(m_);
  });
}

TEST_F(FuseForeach, NotAcrossPartsOrStepsOfAnOptimizer) {
  const Program program = recorded([this] {
    at::_foreach_mul_(m_, 0.9);
    at::_foreach_add_(m_, g_, 1);
  });
  EXPECT_EQ(kernels_in(trained(program, {}).program), 1u);
  Program in_parts = program, in_steps = program;
  in_parts.tasks[1].part = 1;
  in_steps.tasks[1].step = 1;
  EXPECT_EQ(kernels_in(trained(in_parts, {}).program), 0u);
  EXPECT_EQ(kernels_in(trained(in_steps, {}).program), 0u);
}

TEST_F(FuseForeach, NotOnTheCpu) {
  const Program program = recorded([this] { momentum(); });
  const std::vector<std::string> names = {"default"};
  const auto applied = apply_rewrites(program, rewrites_named(names), {}, {.trains = true});
  EXPECT_EQ(kernels_in(applied.program), 0u);
}

TEST_F(FuseForeach, NothingIsDoneToTensorsOutside) {
  const Program program = recorded([this] { momentum(); });
  const Tensors before = copies();
  const auto version = p_[0]._version();
  torch::manual_seed(3);
  std::size_t measured = 0;
  const auto measure = [&](std::span<const Buffer> buffers, std::span<const Task> tasks) {
    for (const Buffer& buffer : buffers) EXPECT_FALSE(buffer.outside.defined());
    ++measured;
    return static_cast<Nanoseconds>(tasks.size());
  };
  EXPECT_EQ(kernels_in(kFuseForeach.apply(program, {.trains = true, .measure = measure}).program), 1u);
  EXPECT_EQ(measured, 2u);
  const at::Tensor next = torch::randn({2});
  torch::manual_seed(3);
  EXPECT_TRUE(at::equal(next, torch::randn({2})));
  const Tensors after = copies();
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(same_bits(after[i], before[i])) << i;
  EXPECT_EQ(p_[0]._version(), version);
}

TEST_F(FuseForeach, ASlowerKernelIsNotTaken) {
  const Program program = recorded([this] { momentum(); });
  const auto measure = [](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
    return tasks.size() == 1 ? 10 : 5;
  };
  EXPECT_TRUE(kFuseForeach.apply(program, {.trains = true, .measure = measure}).sites.empty());
}

// Whether a product was rounded before a sum shows in one of three numbers.
TEST_F(FuseForeach, NotWhatATrialOfSoFewNumbersCannotTell) {
  const Tensors a = {torch::randn({4})}, b = {torch::randn({4})};
  expect_unchanged([&] {
    at::_foreach_mul_(a, 0.9);
    at::_foreach_add_(a, b, 0.3);
  });
  const Program round_once = recorded([&] {
    at::_foreach_mul_(a, 0.9);
    at::_foreach_add_(a, b, 1);
  });
  EXPECT_EQ(kernels_in(trained(round_once, {}).program), 1u);
}

// What decides whether a kernel is taken.
TEST_F(FuseForeach, AKernelThatGivesAnotherBitIsFoundOut) {
  const Program program = recorded([this] { momentum(); });
  const Program fused = trained(program, {}).program;
  ASSERT_EQ(fused.tasks.size(), 1u);
  EXPECT_TRUE(same_alone(program.tasks, fused.tasks[0], fused.buffers));
  const auto with = [&](const std::string& expression) {
    Task task = fused.tasks[0];
    task.arguments[2] = c10::IValue(expression);
    return same_alone(program.tasks, task, fused.buffers);
  };
  const std::string right =
      "%0 = _foreach_mul.Scalar(x0, 0.9); %1 = _foreach_add.List(%0, x2, 1); %2 = _foreach_add.List(x1, %1, "
      "-0.1); "
      "return %1, %2";
  EXPECT_TRUE(with(right));
  EXPECT_FALSE(
      with("%0 = _foreach_mul.Scalar(x0, 0.9); %1 = _foreach_add.List(%0, x2, 1); "
           "%2 = _foreach_mul.Scalar(%1, -0.1); %3 = _foreach_add.List(x1, %2, 1.0000001); return %1, %3"))
      << "the last bit";
  EXPECT_FALSE(with("%0 = _foreach_add.List(x0, x2, 1); return %0, x1"));
  EXPECT_FALSE(with("%0 = _foreach_oops(x0); return %0, x1")) << "one that fails";
}

// A step of an optimizer, put together at random.
TEST_F(FuseForeach, RandomUpdatesKeepEveryBit) {
  const at::Tensor seen = torch::zeros({4});
  std::mt19937_64 random;
  std::vector<Tensors> lists;
  const auto below = [&](std::size_t n) { return random() % n; };
  const auto pick = [&]() -> Tensors { return lists[below(lists.size())]; };
  const auto number = [&] { return 0.5 + static_cast<double>(below(8)) / 16; };
  const std::vector<Update> operations = {
      [&] { at::_foreach_mul_(pick(), number()); },
      [&] { at::_foreach_add_(pick(), pick(), number()); },
      [&] { at::_foreach_lerp_(pick(), pick(), number()); },
      [&] { at::_foreach_addcmul_(pick(), pick(), pick(), number()); },
      [&] { at::_foreach_maximum_(pick(), pick()); },
      [&] { at::_foreach_div_(pick(), Scalars(2, number())); },
      [&] { lists.push_back(at::_foreach_sub(pick(), pick(), number())); },
      [&] { lists.push_back(at::_foreach_neg(pick())); },
      [&] { lists.push_back(at::_foreach_mul(pick(), c_[below(2)])); },
      [&] { at::_foreach_add_(c_, number()); },
      [&] { seen.add_(pick()[1]); },
  };
  std::size_t kernels = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const auto update = [&] {
      random.seed(seed);
      lists = {p_, g_, m_, v_};
      for (int step = 0; step < 10; ++step) operations[below(operations.size())]();
      lists.clear();  // nobody keeps what was made
    };
    const Program fused = trained(recorded(update), {}).program;
    kernels += kernels_in(fused);
    for (const Tensors* tensors : {&p_, &g_, &m_, &v_, &c_}) {
      for (const at::Tensor& tensor : *tensors) tensor.normal_();
    }
    expect_bits(fused, update);
  }
  EXPECT_GE(kernels, 150u);
}

}  // namespace
}  // namespace nimble
