#include "cuda/random_values.h"
#include "rewritten.h"
#include "somebodys_own.h"

namespace nimble {
namespace {

class UnreadWork : public RewriteTest {
 protected:
  // What becomes of `function`, which must give the same bits on other inputs too.
  std::string drawn_after(const Function& function) const {
    const Program program = rewritten(function, inputs_, {"unread_work"});
    const Tensors fresh = {torch::randn({4, 4})};
    const Tensors expected = function(fresh), given = run(program, fresh);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(given[i], expected[i])) << i;
    return drawn(program);
  }
  std::size_t fired_on(const Function& function, bool trains = false) const {
    return fired(function, inputs_, "unread_work", trains);
  }
  const Tensors inputs_ = {torch::randn({4, 4})};
};

TEST_F(UnreadWork, AChainThatNobodyReadsIsNotComputed) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0].exp().sin();
    x.select(0, 1).zero_();
    std::get<0>(x.topk(2)).add_(1);
    return {in[0] * 2};
  };
  EXPECT_EQ(drawn(record(inputs_, function)), R"(
%0 = exp(input0)
%1 = sin(%0)
%1 = zero_(%1)
%2, %3 = topk(%1)
%2 = add_(%2)
%4 = mul(input0)
return %4
)");
  EXPECT_EQ(drawn_after(function), R"(
%0 = mul(input0)
return %0
)");
}

TEST_F(UnreadWork, WhatIsOverwrittenIsNotFilled) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor x = torch::zeros({4, 4});
    x.copy_(in[0]);
    return {x + 1};
  };
  EXPECT_EQ(drawn(record(inputs_, function)), R"(
%0 = zeros()
%0 = copy_(%0, input0)
%1 = add(%0)
return %1
)");
  EXPECT_EQ(drawn_after(function), R"(
%0 = copy_(%0, input0)
%1 = add(%0)
return %1
)");
}

TEST_F(UnreadWork, NorWhatIsGivenAsOut) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = torch::ones({4, 4});
    x.fill_(3);
    at::exp_out(x, in[0]);
    return {x + 1};
  };
  EXPECT_EQ(drawn_after(function), R"(
%0 = exp(input0, %0)
%1 = add(%0)
return %1
)");
}

TEST_F(UnreadWork, AResultThatIsOverwrittenIsNotFilledEither) {
  EXPECT_EQ(drawn_after([](const Tensors& in) -> Tensors {
              const at::Tensor x = torch::zeros_like(in[0]);
              x.copy_(in[0]);
              return {x};
            }),
            R"(
%0 = copy_(%0, input0)
return %0
)");
}

// The slice is filled twice, the rest once.
TEST_F(UnreadWork, ASliceThatIsOverwrittenAsAWhole) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].exp();
    x.slice(1, 0, 2).zero_();
    x.slice(1, 0, 2).copy_(in[0].slice(1, 2, 4));
    return {x + 1};
  };
  EXPECT_EQ(drawn_after(function), R"(
%0 = exp(input0)
%0 = copy_(%0, input0)
%1 = add(%0)
return %1
)");
}

TEST_F(UnreadWork, NotWhatIsOverwrittenInPart) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor x = torch::zeros({4, 4});
              x.slice(0, 0, 3).copy_(in[0].slice(0, 0, 3));
              return {x + 1};
            }),
            0u);
  // The range from its first to its last byte is the whole, its elements are not.
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor x = torch::zeros({4, 4});
              x.as_strided({2}, {15}).copy_(in[0].slice(0, 0, 1).flatten().slice(0, 0, 2));
              return {x + 1};
            }),
            0u);
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor x = torch::zeros({4, 4});
              x.masked_fill_(in[0] > 0, 1);
              return {x + 1};
            }),
            0u);
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor x = torch::zeros({4, 4});
              x.index_put_({torch::arange(4)}, in[0]);
              return {x + 1};
            }),
            0u);
}

TEST_F(UnreadWork, NotWhatIsReadBeforeItIsOverwritten) {
  EXPECT_EQ(drawn_after([](const Tensors& in) -> Tensors {
              const at::Tensor x = in[0].exp();
              const at::Tensor row = x.select(0, 1) + 1;
              x.copy_(in[0]);
              return {x + 1, row};
            }),
            R"(
%0 = exp(input0)
%1 = add(%0)
%2 = copy_(%2, input0)
%3 = add(%2)
return %3 %1
)");
  EXPECT_EQ(drawn_after([](const Tensors& in) -> Tensors {
              const at::Tensor x = in[0].exp();
              x.copy_(x.t().clone());
              return {x + 1};
            }),
            R"(
%0 = exp(input0)
%1 = clone(%0)
%2 = copy_(%2, %1)
%3 = add(%2)
return %3
)");
}

TEST_F(UnreadWork, NotWhatIsReturned) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor x = in[0].exp();
              x.select(0, 3).zero_();  // belongs to the caller as the rest does
              return {x.slice(0, 0, 2)};
            }),
            0u);
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {in[0].exp().slice(0, 0, 0), in[0].new_zeros({0}), in[0] + 1};
            }),
            0u);
}

TEST_F(UnreadWork, NotWhatIsWrittenOutside) {
  const at::Tensor counter = torch::zeros({4, 4});
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              counter.add_(in[0]);
              counter.zero_();
              return {in[0] + 1};
            }),
            0u);
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor result = in[0] + 1;
              in[0].zero_();
              return {result};
            }),
            0u);
}

// What is drawn later would be other numbers.
TEST_F(UnreadWork, NotRandomNumbers) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              torch::rand({4});
              return {in[0] + torch::rand({4})};
            }),
            0u);
}

TEST_F(UnreadWork, NotOperatorsThatNobodyKnows) {
  const Function function = [](const Tensors& in) -> Tensors {
    by_somebodys_own(in[0]);
    return {in[0] * 2};
  };
  EXPECT_EQ(fired_on(function), 0u);
}

TEST_F(UnreadWork, NotInTraining) {
  const Function function = [](const Tensors& in) -> Tensors {
    in[0].exp();
    return {in[0] * 2};
  };
  EXPECT_EQ(fired_on(function), 1u);
  EXPECT_EQ(fired_on(function, /*trains=*/true), 0u);
}

// Values that are made, filled, overwritten as wholes, row by row and column by column, and often not read.
TEST_F(UnreadWork, RandomProgramsGiveEagersBits) {
  using Values = RandomValues;
  const std::vector<Values::Operation> operations = {
      [](Values& v) { return v.pick() + v.pick(); },
      [](Values& v) { return v.pick().exp().clamp(0, 2); },
      [](Values&) {
        return torch::zeros({4, 4});
      },
      [](Values& v) { return torch::full_like(v.pick(), 2); },
      [](Values& v) { return v.pick_own().t(); },
      [](Values& v) {
        return torch::zeros({4, 4}).copy_(v.pick());
      },
      [](Values& v) {
        const auto dim = static_cast<std::int64_t>(v.number_below(2));
        const auto n = static_cast<std::int64_t>(v.number_below(4));
        v.pick_own().narrow(dim, n, 4 - n).copy_(v.pick().narrow(dim, 0, 4 - n).clone());
        return at::Tensor();
      },
      [](Values& v) {
        v.pick_own().select(0, static_cast<std::int64_t>(v.number_below(4))).fill_(3);
        return at::Tensor();
      },
      [](Values& v) {
        v.pick_own().copy_(v.pick().clone());
        return at::Tensor();
      },
      [](Values& v) {
        v.pick_own().zero_();
        return at::Tensor();
      },
      [](Values& v) {
        v.pick_own().mul_(0.5);
        return at::Tensor();
      },
      [](Values& v) {
        at::Tensor out = v.pick_own();
        at::sin_out(out, v.pick().clone());
        return at::Tensor();
      },
  };
  std::size_t dropped = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Function function = [&](const Tensors& in) -> Tensors {
      RandomValues values({in[0], in[0] * 2}, /*made=*/1, seed);
      values.grow(16, operations);
      return {values.last() + 1, values.pick_own()};
    };
    drawn_after(function);
    dropped += fired_on(function);
  }
  EXPECT_GT(dropped, 300u);
}

}  // namespace
}  // namespace nimble
