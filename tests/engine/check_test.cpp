#include "nimble/engine/check.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "nimble/engine/compiled.h"
#include "nimble/torch/dispatch_mode.h"

namespace nimble {
namespace {

// Somebody whose memory is full as soon as an eager run has answered: nothing can be looked at any more.
class FullMemory final : public Host {
 public:
  explicit FullMemory(std::function<Tensors(const Tensors&)> function) : function_(std::move(function)) {}

  Tensors run(const Tensors& inputs, const Pauses*) override {
    Tensors outputs = function_(inputs);
    is_full_ = true;
    return outputs;
  }
  Tensors record(const Tensors& inputs, ProgramBuilder& builder) override {
    const DispatchModeGuard mode(builder);
    return function_(inputs);
  }
  void record_backward(ProgramBuilder&, const std::function<void()>&) override {}
  std::unique_ptr<OutsideGuard> watch(const Program&) override { return std::make_unique<Guard>(is_full_); }
  void warn(const std::string&) override {}
  void log(const std::string&) override {}

 private:
  class Guard final : public OutsideGuard {
   public:
    explicit Guard(const bool& is_full) : is_full_(is_full) {}
    bool holds() override { return true; }
    std::vector<Kept> kept() override {
      TORCH_CHECK(!is_full_, "out of memory");
      return {};
    }

   private:
    const bool& is_full_;
  };

  std::function<Tensors(const Tensors&)> function_;
  bool is_full_ = false;
};

TEST(Check, WithoutMemoryToCompareWithFailsAndLeavesTheUserEagersAnswer) {
  const torch::NoGradGuard no_grad;
  at::Tensor count = torch::zeros({1});
  FullMemory host([&](const Tensors& in) -> Tensors { return {in[0] + count.add_(1)}; });
  Compiled compiled({});
  for (int call = 1; call <= 4; ++call) {
    const Tensors outputs = compiled.call({torch::zeros({2})}, 0, host).outputs;
    EXPECT_TRUE(at::equal(outputs.at(0), torch::full({2}, call)));
  }
  EXPECT_EQ(compiled.stats().replays, 0u);
  EXPECT_NE(compiled.explain().find("could not be compared with eager's run: out of memory\n"),
            std::string::npos)
      << compiled.explain();
}

}  // namespace
}  // namespace nimble
