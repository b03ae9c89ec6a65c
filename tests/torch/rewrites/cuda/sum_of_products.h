#pragma once

#include "forced.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {

using Bias = std::optional<at::Tensor>;

inline bool is_product(const Task& task) {
  return is_call_of(task, "nimble::matrix_convolution") ||
         is_call_of(task, "nimble::pointwise_convolution") || is_call_of(task, "aten::convolution");
}

inline std::int64_t channels_into(const Task& product) { return tensor_argument(product, 0)->sizes[1]; }

// As if these had been measured.
struct Times {
  Nanoseconds product = 10;  // each, but those of more channels than the images have
  Nanoseconds whole = 10;
  Nanoseconds side_by_side = 20;
  Nanoseconds others = 5, into_a_slice = 5;

  Nanoseconds of(const Task& task) const {
    if (task.op.operator_name().overload_name == "out") return into_a_slice;
    return !is_product(task) ? others : channels_into(task) > 16 ? whole : product;
  }
  RewriteContext context() const {
    const auto alone = [*this](std::span<const Buffer>, std::span<const Task> tasks) {
      Nanoseconds sum = 0;
      for (const Task& task : tasks) sum += of(task);
      return sum;
    };
    const auto beside = [*this](std::span<const Buffer>, std::span<const Task>) { return side_by_side; };
    return {.measure = alone, .measure_side_by_side = beside, .measure_seconds = 100};
  }
};

class SumOfProducts : public RewriteTest {
 protected:
  const std::vector<const Rewrite*> kBefore = {&kFoldBatchNorm, &kChannelsLast, &kFuseConvolution, &kPooling,
                                               &kFusePointwise};

  Forced summed(const Function& function, const RewriteContext& context = Times{}.context()) const {
    return forced(function, images_, kSumOfProducts, kBefore, context);
  }
  // And then what is concatenated is written by address.
  Forced with_cat(const Function& function) const {
    auto before = kBefore;
    before.push_back(&kSumOfProducts);
    return forced(function, images_, kCatByAddress, before, Times{}.context());
  }
  void expect_drawn(const Function& function, const std::string& picture) const {
    const Forced result = summed(function);
    EXPECT_EQ(drawn(result.program), picture);
    expect_same(result.program, function, images_);
  }
  void expect_untouched(const Function& function) const {
    const Forced result = summed(function);
    EXPECT_TRUE(result.sites.empty()) << result.sites.front() << drawn(result.program);
    expect_same(result.program, function, images_);
  }
  std::size_t times_fired(const Function& function, const RewriteContext& context) const {
    return summed(function, context).sites.size();
  }

  static at::Tensor image(std::int64_t channels = 16) {
    return torch::randn({1, channels, 6, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  }
  static at::Tensor weights(std::int64_t filters = 8, std::int64_t channels = 16, std::int64_t size = 1) {
    return torch::randn({filters, channels, size, size}) / static_cast<double>(4 * size);
  }
  static at::Tensor conv(const at::Tensor& x, const at::Tensor& w, const Bias& bias = {},
                         std::int64_t stride = 1, std::int64_t padding = 0, std::int64_t groups = 1) {
    return at::conv2d(x, w, bias, {stride, stride}, {padding, padding}, {1, 1}, groups);
  }
  at::Tensor depthwise(const at::Tensor& x) const { return conv(x, filters_, {}, 1, 1, /*groups=*/16); }

  // As somebody might call it, with any term, weight and bias.
  static at::Tensor conv_and_sum(const at::Tensor& x, const at::Tensor& w, const at::Tensor& term,
                                 const Bias& bias = {}) {
    static const auto op = find_operator("nimble::pointwise_convolution")
                               .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const Bias&,
                                                 const Bias&, c10::string_view, std::int64_t)>();
    return op.call(x, w, bias, term, "none", 0);
  }
  at::Tensor sum(const Tensors& in) const {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_);
    return first + conv(depthwise(in[1]), v_, bias_v_);
  }

  const Tensors images_ = {image(), image()};
  const at::Tensor w_ = weights(), v_ = weights(), u_ = weights(), bias_w_ = torch::randn({8}),
                   bias_v_ = torch::randn({8}), bias_u_ = torch::randn({8}),
                   filters_ = torch::randn({16, 1, 3, 3}) / 3;

  Function two() const {
    return [this](const Tensors& in) -> Tensors { return {sum(in).exp()}; };
  }
};

}  // namespace nimble
