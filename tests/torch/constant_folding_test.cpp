#include "nimble/torch/constant_folding.h"

#include <gtest/gtest.h>

#include "recorded.h"
#include "rewrites/somebodys_own.h"

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

// Host data would have to be made anew by each replay.
TEST(ConstantFolding, HostDataIsNotRewrittenBetweenTwoReaders) {
  const auto message = [](bool looks_before) -> std::string {
    const at::Tensor host_data = torch::tensor({1.0f, 2.0f});
    try {
      record({torch::randn({2})}, [&](const Tensors& in) -> Tensors {
        const at::Tensor scale = at::lift_fresh(host_data);  // as torch.tensor does in Python
        const at::Tensor before = looks_before ? in[0] * scale : in[0];
        scale.add_(1);
        return {before + in[0] * scale};
      });
    } catch (const RecordError& error) {
      return error.what();
    }
    return "";
  };
  const std::string refused = message(true);
  EXPECT_NE(refused.find("it writes into a tensor that was made from host data"), std::string::npos)
      << refused;
  EXPECT_EQ(message(false), "");
}

TEST(ConstantFolding, SomebodysOwnOperatorsMakeConstantsOfConstants) {
  const Program program = record({torch::randn({4})}, [](const Tensors& in) -> Tensors {
    return {in[0] * by_somebodys_own(torch::ones({4}))};
  });
  EXPECT_EQ(operators(program), (std::vector<std::string>{"aten::mul"}));
}

}  // namespace
}  // namespace nimble
