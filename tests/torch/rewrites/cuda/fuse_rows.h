#pragma once

#include "forced.h"

namespace nimble {

// Programs of rows, as `fuse_rows` leaves them.
class FuseRows : public RewriteTest {
 protected:
  static Forced fused(const Function& function, const Tensors& inputs, const RewriteContext& context = {}) {
    return forced(function, inputs, kFuseRows, {}, context);
  }
  void expect_drawn(const Function& function, const std::string& picture) {
    const Forced result = fused(function, inputs_);
    EXPECT_EQ(drawn(result.program), picture);
    expect_same(result.program, function, inputs_, 0);  // the same calls, so the same bits
  }
  void expect_nothing(const Function& function) { expect_nothing(function, inputs_); }
  static void expect_nothing(const Function& function, const Tensors& inputs) {
    EXPECT_TRUE(fused(function, inputs).sites.empty());
  }

  at::Tensor norm(const at::Tensor& x) const { return at::layer_norm(x, {6}, weight_, bias_); }

  const Tensors inputs_ = {torch::randn({2, 4, 6}), torch::randn({2, 4, 6})};
  const at::Tensor weight_ = torch::randn({6}), bias_ = torch::randn({6}), matrix_ = torch::randn({6, 6});
};

}  // namespace nimble
