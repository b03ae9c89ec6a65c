#include "cuda/forced.h"
#include "cuda/random_values.h"

namespace nimble {
namespace {

class UnneededCopies : public RewriteTest {
 protected:
  void expect_drawn(const Function& function, const std::string& expected) const {
    const Forced result = forced(function, inputs_, kUnneededCopies);
    EXPECT_EQ(drawn(result.program), expected);
    expect_same(result.program, function, inputs_);
  }
  std::size_t fired_on(const Function& function) const {
    const Forced result = forced(function, inputs_, kUnneededCopies);
    expect_same(result.program, function, inputs_);
    return result.sites.size();
  }
  const Tensors inputs_ = {torch::randn({6, 6}), torch::randn({6, 6})};
};

TEST_F(UnneededCopies, PointwiseTasksReadASlice) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor left = in[0].slice(1, 0, 3).contiguous();
    return {left.exp() * 2, left + in[1].slice(1, 3, 6).clone()};
  };
  EXPECT_EQ(drawn(record(inputs_, function)), R"(
%0 = clone(input0)
%1 = exp(%0)
%2 = mul(%1)
%3 = clone(input1)
%4 = add(%0, %3)
return %2 %4
)");
  expect_drawn(function, R"(
%0 = exp(input0)
%1 = mul(%0)
%2 = add(input0, input1)
return %1 %2
)");
}

TEST_F(UnneededCopies, MatrixProductsReadATransposedMatrix) {
  expect_drawn([](const Tensors& in) -> Tensors { return {at::mm(in[0].t().contiguous(), in[1])}; },
               R"(
%0 = mm(input0, input1)
return %0
)");
}

TEST_F(UnneededCopies, ACopyIntoFreshMemoryToo) {
  expect_drawn(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = torch::empty({3, 6});
        x.copy_(in[0].slice(0, 0, 3));
        return {x + 1};
      },
      R"(
%0 = add(input0)
return %0
)");
}

TEST_F(UnneededCopies, NotWhereTheResultWouldLieOtherwise) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors { return {in[0].t().contiguous() + 1}; }), 0u);
}

TEST_F(UnneededCopies, NotWhereAReaderWouldCopyItself) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {  // every other element: no library takes that
              return {at::mm(in[0].slice(0, 0, 6, 2).slice(1, 0, 6, 2).contiguous(), in[1].slice(0, 0, 3))};
            }),
            0u);
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {at::cumsum(in[0].slice(1, 0, 3).contiguous(), 0)};
            }),
            0u);
}

TEST_F(UnneededCopies, NotWhereTheCopyIsLookedAtThroughAView) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {in[0].slice(1, 0, 3).contiguous().view({18}) + 1};
            }),
            0u);
}

TEST_F(UnneededCopies, NotWhereOneOfSeveralReadersNeedsIt) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor left = in[0].slice(1, 0, 3).contiguous();
              return {left + 1, at::cumsum(left, 0)};
            }),
            0u);
}

TEST_F(UnneededCopies, NotWhatIsReturned) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor left = in[0].slice(1, 0, 3).contiguous();
              return {left, left + 1};
            }),
            0u);
}

TEST_F(UnneededCopies, NotIfTheCopyIsChanged) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor left = in[0].slice(1, 0, 3).clone();
              left.select(0, 1).zero_();
              return {left + 1};
            }),
            0u);
}

TEST_F(UnneededCopies, NotIfWhatWasCopiedIsChanged) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor x = in[0] * 2;
              const at::Tensor before = x.slice(1, 0, 3).clone();
              x.select(0, 1).zero_();
              return {before + 1, x + 1};
            }),
            0u);
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {  // by the very task that reads the copy
              const at::Tensor x = in[0] * 2;
              x.slice(1, 0, 3).add_(x.slice(1, 3, 6).clone());
              x.slice(1, 1, 4).add_(x.slice(1, 0, 3).clone());
              return {x + 1};
            }),
            0u);
}

TEST_F(UnneededCopies, NotWeightsWhichAreCopiedOnce) {
  const at::Tensor weight = torch::randn({6, 6});
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors { return {at::mm(in[0], weight.t().contiguous())}; }),
            0u);
}

TEST_F(UnneededCopies, NotACast) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor x = torch::empty({6, 6}, at::kDouble);
              x.copy_(in[0]);
              return {x + 1};
            }),
            0u);
}

TEST_F(UnneededCopies, NotWhereReadingTheCopyWasMeasuredToBeFaster) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {in[0].slice(1, 0, 3).contiguous() + 1};
  };
  const auto taking = [](Nanoseconds with_copy) -> RewriteContext {
    return {.measure = [=](std::span<const Buffer>, std::span<const Task> tasks) -> Nanoseconds {
              return tasks.size() > 1 ? with_copy : 100;
            },
            .measure_seconds = 1};
  };
  EXPECT_EQ(forced(function, inputs_, kUnneededCopies, {}, taking(50)).sites.size(), 0u);
  EXPECT_EQ(forced(function, inputs_, kUnneededCopies, {}, taking(200)).sites.size(), 1u);
}

TEST_F(UnneededCopies, RandomProgramsGiveWhatEagerGives) {
  using Values = RandomValues;
  const auto half = [](Values& v) {
    return v.pick().narrow(static_cast<std::int64_t>(v.number_below(2)),
                           static_cast<std::int64_t>(v.number_below(4)), 3);
  };
  const std::vector<Values::Operation> operations = {
      [](Values& v) { return v.pick().clone() + v.pick(); },
      [](Values& v) { return at::mm(v.pick().t().contiguous(), v.pick()) / 6; },
      [](Values& v) { return at::addmm(v.pick(), v.pick(), v.pick().clone()) / 6; },
      [](Values& v) { return v.pick_own().t(); },
      [](Values& v) {
        return torch::empty({6, 6}).copy_(v.pick());
      },
      [&](Values& v) {
        const at::Tensor part = half(v).contiguous();
        return at::cat({part.sin(), part.clone().cos()}, part.size(0) == 3 ? 0 : 1);
      },
      [](Values& v) {
        v.pick_own().select(0, 1).mul_(0.5);
        return at::Tensor();
      },
      [](Values& v) {
        v.pick_own().copy_(v.pick().clone());
        return at::Tensor();
      },
      [](Values& v) {
        at::Tensor own = v.pick_own();
        own.add_(own.t().clone());
        return at::Tensor();
      },
  };
  std::size_t fired = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    fired += fired_on([&](const Tensors& in) -> Tensors {
      Values values({in[0], in[1], in[0] * 2}, /*made=*/2, seed);
      values.grow(10, operations);
      return {values.last() + 1, values.pick_own() * 1};
    });
  }
  EXPECT_GT(fired, 150u);
}

}  // namespace
}  // namespace nimble
