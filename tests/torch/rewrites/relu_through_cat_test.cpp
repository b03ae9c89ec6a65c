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

TEST_F(ReluThroughCat, NotAnOperatorThatLooksAtNeighbours) {
  EXPECT_EQ(fired_on([](const Tensors& in) -> Tensors {
              return {at::softmax(at::cat({in[0] + 1, in[1] + 1}, 1), 1)};
            }),
            0u);
}

}  // namespace
}  // namespace nimble
