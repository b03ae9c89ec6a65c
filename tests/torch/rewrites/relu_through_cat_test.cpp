#include "rewritten.h"

namespace nimble {
namespace {

class ReluThroughCat : public RewriteTest {
 protected:
  std::size_t fired_on(const Function& function) { return fired(function, inputs_, "relu_through_cat"); }
  const Tensors inputs_ = {torch::randn({1, 4, 5, 5}), torch::randn({1, 4, 5, 5})};
};

TEST_F(ReluThroughCat, MovesToTheParts) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::cat({in[0] + in[1], in[0] * in[1]}, 1).relu()};
  };
  const Program program = rewritten(function, inputs_, {"relu_through_cat"});
  EXPECT_EQ(drawn(program), R"(
%0 = add(input0, input1)
%1 = mul(input0, input1)
%2 = relu(%0)
%3 = relu(%1)
%4 = cat(%2, %3)
return %4
)");
  EXPECT_TRUE(at::equal(run(program, inputs_)[0], function(inputs_)[0]));
}

TEST_F(ReluThroughCat, EveryFunctionOfOneNumberMoves) {
  using Activation = at::Tensor (*)(const at::Tensor&);
  for (const Activation activation : {
           Activation([](const at::Tensor& x) { return at::leaky_relu(x, 0.2); }),
           Activation([](const at::Tensor& x) { return at::gelu(x, "tanh"); }),
           Activation([](const at::Tensor& x) { return at::tanh(x); }),
           Activation([](const at::Tensor& x) { return at::clamp(x, -0.5, 0.5); }),
           Activation([](const at::Tensor& x) { return at::hardtanh(x, 0, 6); }),
           Activation([](const at::Tensor& x) { return at::silu(x); }),
           Activation([](const at::Tensor& x) { return at::hardswish(x); }),
           Activation([](const at::Tensor& x) { return at::sigmoid(x); }),
       }) {
    const Function function = [=](const Tensors& in) -> Tensors {
      return {activation(at::cat({in[0] + in[1], in[0] * in[1]}, 1))};
    };
    EXPECT_EQ(fired_on(function), 1u);
    const Program program = rewritten(function, inputs_, {"relu_through_cat"});
    EXPECT_TRUE(at::allclose(run(program, inputs_)[0], function(inputs_)[0]));
  }
}

TEST_F(ReluThroughCat, OneInPlaceMovesIfTheConcatenationVanishes) {
  const Function function = [](const Tensors& in) -> Tensors {
    return {at::cat({in[0] + in[1], in[0] * in[1]}, 1).tanh_() * 2};
  };
  EXPECT_EQ(fired_on(function), 1u);
  const Program program = rewritten(function, inputs_, {"relu_through_cat"});
  EXPECT_TRUE(at::allclose(run(program, inputs_)[0], function(inputs_)[0]));
}

TEST_F(ReluThroughCat, NotOneInPlaceOnAPart) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor both = at::cat({in[0] + 1, in[1] + 1}, 1);
              both.slice(1, 0, 4).relu_();
              return {both * 2};
            }),
            0u);
}

TEST_F(ReluThroughCat, NotThroughAView) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {at::cat({in[0] + 1, in[1] + 1}, 1).slice(1, 0, 4).relu()};
            }),
            0u);
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {at::cat({in[0] + 1, in[1] + 1}, 1).view({8, 25}).tanh()};
            }),
            0u);
}

TEST_F(ReluThroughCat, NotOneThatLooksAtOtherTensorsOrWritesToOne) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {at::clamp(at::cat({in[0] + 1, in[1] + 1}, 1), torch::zeros({1, 8, 5, 5}))};
            }),
            0u);
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              at::Tensor larger = in[0].new_zeros({2, 8, 5, 5});
              at::Tensor half = larger.slice(0, 0, 1);
              at::tanh_out(half, at::cat({in[0] + 1, in[1] + 1}, 1));
              return {larger * 2};
            }),
            0u);
}

TEST_F(ReluThroughCat, NotWhereItCouldNotFuseWithMostOfTheParts) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors { return {at::cat({in[0], in[1]}, 1).relu()}; }), 0u);
}

TEST_F(ReluThroughCat, NotIfSomebodyElseReadsTheConcatenation) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor both = at::cat({in[0] + 1, in[1] + 1}, 1);
              return {both.relu(), both};
            }),
            0u);
}

TEST_F(ReluThroughCat, NotIfTheConcatenationIsWrittenInBetween) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              const at::Tensor both = at::cat({in[0] + 1, in[1] + 1}, 1);
              both.select(2, 0).zero_();
              return {both.relu()};
            }),
            0u);
}

TEST_F(ReluThroughCat, NotPartsOfSeveralTypes) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {at::cat({in[0] + 1, (in[1] + 1).to(at::kDouble)}, 1).relu()};
            }),
            0u);
}

// They stay as they were for whoever else looks at them, and are read where the concatenation stood.
TEST_F(ReluThroughCat, PartsMayBeReadAndWrittenByOthers) {
  const Function function = [](const Tensors& in) -> Tensors {
    const at::Tensor a = in[0] + in[1], b = in[0] * in[1], c = in[0] - 1;
    const at::Tensor both = at::cat({a, b, c}, 1);
    c.select(2, 0).zero_();
    return {both.relu(), a, b.sum(), c};
  };
  EXPECT_EQ(fired_on(function), 1u);
  const Program program = rewritten(function, inputs_, {"relu_through_cat"});
  const Tensors given = run(program, inputs_), expected = function(inputs_);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(given[i], expected[i])) << i;
}

TEST_F(ReluThroughCat, NotAnOperatorThatLooksAtNeighbours) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {at::softmax(at::cat({in[0] + 1, in[1] + 1}, 1), 1)};
            }),
            0u);
}

}  // namespace
}  // namespace nimble
