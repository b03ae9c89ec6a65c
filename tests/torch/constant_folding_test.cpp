#include "nimble/torch/constant_folding.h"

#include <gtest/gtest.h>

#include "recorded.h"

namespace nimble {
namespace {

TEST(ConstantFolding, WhatDependsOnNoInputRunsOnce) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    return {in[0] * torch::arange(4.).add(1).sqrt()};
  });
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::mul"}));
}

TEST(ConstantFolding, WhatWasDroppedIsNoted) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    return {in[0] * torch::arange(4.).add(1).sqrt()};
  });
  std::vector<std::string> dropped;
  for (const Note& note : program.notes) {
    EXPECT_EQ(note.what, "folded");
    dropped.push_back(note.subject.substr(0, note.subject.find('#')));
  }
  EXPECT_EQ(dropped, (std::vector<std::string>{"arange", "add", "sqrt"}));
}

TEST(ConstantFolding, WhatIsWrittenLaterStays) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    at::Tensor sum = torch::zeros({4});
    sum.add_(in[0]);
    return {sum.exp()};
  });
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::zeros", "aten::add_", "aten::exp"}));
}

TEST(ConstantFolding, WhatIsReturnedStaysBecauseTheCallerMayChangeIt) {
  const Program program =
      record({torch::randn({4})}, [](const Tensors&) -> Tensors { return {torch::ones({4})}; });
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::ones"}));
}

TEST(ConstantFolding, RandomNumbersAreNoConstants) {
  const Program program =
      record({torch::randn({4})}, [](const Tensors& in) -> Tensors { return {in[0] + torch::rand({4})}; });
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::rand", "aten::add"}));
}

TEST(ConstantFolding, TheHostMayLookAtConstants) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    return {in[0] * torch::arange(4.).sum().item<float>()};
  });
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::mul"}));
}

// A constant that is rewritten after somebody looked at it is two values, not one.
TEST(ConstantFolding, AConstantRewrittenBetweenTwoReadersStays) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    at::Tensor scale = torch::ones({4});
    at::Tensor first = in[0] * scale;
    scale.fill_(2);
    return {first, in[0] * scale};
  });
  EXPECT_EQ(operators(program),
            (std::vector<std::string>{"aten::ones", "aten::mul", "aten::fill_", "aten::mul"}));
}

}  // namespace
}  // namespace nimble
