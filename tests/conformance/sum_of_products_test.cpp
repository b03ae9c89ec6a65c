// A sum of products as one product, on a GPU. Whether that is faster depends on the machine, so its times are
// made up.
#include <gtest/gtest.h>

#include <algorithm>

#include "nimble/torch/rewrites/apply.h"
#include "nimble/torch/rewrites/registry.h"
#include "tests/conformance/replayed.h"

namespace nimble::testing {
namespace {

//   x ─▶ 3×3 ─▶ 1×1 w ─┐
//                      + ─▶ relu
//   y ─▶ 3×3 ─▶ 1×1 v ─┘
Subject sum_of_products(c10::Device device, at::ScalarType dtype) {
  const at::TensorOptions options(device);
  const auto weights = [&](at::IntArrayRef sizes) { return at::randn(sizes, options).mul_(0.2).to(dtype); };
  const at::Tensor depthwise_x = weights({32, 1, 3, 3}), depthwise_y = weights({32, 1, 3, 3}),
                   w = weights({24, 32, 1, 1}), v = weights({24, 32, 1, 1}), bias_w = weights({24}),
                   bias_v = weights({24});
  const auto function = [=](const Tensors& in) -> Tensors {
    const auto in_type = [&](const at::Tensor& weight) { return weight.to(in[0].scalar_type()); };
    const auto half = [&](const at::Tensor& x, const at::Tensor& depthwise, const at::Tensor& weight,
                          const at::Tensor& bias) {
      return at::conv2d(at::conv2d(x, in_type(depthwise), {}, 1, 1, 1, 32), in_type(weight), in_type(bias));
    };
    const at::Tensor first = half(in[0], depthwise_x, w, bias_w);
    return {at::relu(first + half(in[1], depthwise_y, v, bias_v))};
  };
  const auto fresh_inputs = [=]() -> Tensors {
    const auto image = [&] {
      return at::randn({2, 32, 14, 14}, options).to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
    };
    return {image(), image()};
  };
  return {function, fresh_inputs, {}};
}

// As if every task took as long as every other: fewer are faster.
RewriteContext with_equal_times(c10::Device device) {
  const auto count = [](std::span<const Buffer>, std::span<const Task> tasks) {
    return static_cast<Nanoseconds>(tasks.size());
  };
  return {.device = device, .measure = count, .measure_side_by_side = count};
}

class SumOfProductsOnCuda : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << "no CUDA device";
    make_kernels_deterministic();
    at::manual_seed(5);
  }
};

TEST_P(SumOfProductsOnCuda, GivesWhatTheSummandsGive) {
  const at::NoGradGuard no_grad;
  const c10::Device gpu(c10::kCUDA, 0);
  const Subject subject = sum_of_products(gpu, GetParam());
  const std::vector<std::string> names = {"channels_last", "fuse_convolution", "sum_of_products"};
  const AppliedRewrites applied = apply_rewrites(*record(subject, gpu), rewrites_named(names),
                                                 subject.fresh_inputs(), with_equal_times(gpu));
  for (const RewriteReport& report : applied.reports) EXPECT_EQ(report.dropped, "") << report.name;
  ASSERT_EQ(std::ranges::count(applied.reports, "sum_of_products", &RewriteReport::name), 1);

  const auto program = std::make_shared<const Program>(applied.program);
  for (const std::size_t streams : {1, 2}) {
    const auto executable = prepare(program, streams);
    for (int replay = 0; replay < 3; ++replay) {
      const Tensors inputs = subject.fresh_inputs();
      const at::Tensor result = executable->replay(inputs)[0].to(at::kDouble);
      const at::Tensor exact = subject.function({inputs[0].to(at::kDouble), inputs[1].to(at::kDouble)})[0];
      const double off = ((result - exact).abs().max() / exact.abs().max()).item<double>();
      EXPECT_LT(off, 5e-3) << "more than TF32 and half precision round";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, SumOfProductsOnCuda, ::testing::Values(at::kFloat, at::kHalf));

}  // namespace
}  // namespace nimble::testing
