// Which rewrites a program that trains gets: the others fire in inference alone.

#include <map>
#include <set>

#include "nimble/torch/rewrites/all.h"
#include "norm.h"
#include "rewritten.h"

namespace nimble {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

// Some rewrites are taken only where they measure faster. Kernels of ours are, here.
RewriteContext ours_are_faster() {
  const auto together = [](std::span<const Buffer>, std::span<const Task> tasks) {
    Nanoseconds time = 0;
    for (const Task& task : tasks) time += task.op.operator_name().name.starts_with("nimble::") ? 1 : 100;
    return time;
  };
  const auto side_by_side = [](std::span<const Buffer>, std::span<const Task>) { return Nanoseconds{100}; };
  return {.measure = together, .measure_side_by_side = side_by_side};
}

// What a rewrite fires on in inference, once those that prepare for it have.
struct Example {
  at::Tensor input;
  std::function<at::Tensor(const at::Tensor&)> function;
  std::vector<const Rewrite*> prepared_by = {};
  RewriteContext inference = {};

  Tensors inputs() const { return {input}; }
  Program program() const {
    Program program = record(inputs(), [&](const Tensors& in) -> Tensors { return {function(in[0])}; });
    for (const Rewrite* rewrite : prepared_by) {
      program = record_anew(rewrite->apply(program, {}).program, inputs());
    }
    return program;
  }

  RewriteContext training(c10::Device device, bool tolerant = false) const {
    RewriteContext context = inference;
    context.device = device;
    context.trains = true;
    context.tolerant = tolerant;
    return context;
  }
};

class TrainingMode : public RewriteTest {
 protected:
  at::Tensor conv(const at::Tensor& x) const { return at::conv2d(x, weight_, bias_); }
  at::Tensor other_conv(const at::Tensor& x) const { return at::conv2d(x, other_weight_, bias_); }
  at::Tensor depthwise(const at::Tensor& x) const {
    return at::conv2d(x, filters_, bias_, {1, 1}, {1, 1}, {1, 1}, 16);
  }
  at::Tensor large_conv(const at::Tensor& x) const { return at::conv2d(x, large_weight_); }
  static at::Tensor cat(const at::Tensor& a, const at::Tensor& b) { return at::cat({a, b}, 1); }
  at::Tensor linear(const at::Tensor& x) const { return at::linear(x, matrix_, bias_); }
  at::Tensor other_linear(const at::Tensor& x) const { return at::linear(x, other_matrix_, bias_); }
  at::Tensor attention(const at::Tensor& x) const {
    return std::get<0>(at::_native_multi_head_attention(x, x, x, 16, 2, projection_, projection_bias_,
                                                        matrix_, bias_, {}, false));
  }

  // By rewrite.
  std::map<std::string_view, Example> examples() const {
    const auto work_in_vain = [](const at::Tensor& x) {
      x.exp();
      return x * 2;
    };
    return {
        {"common_subexpressions", {rows_, [](auto x) { return x.exp() + x.exp(); }}},
        {"unread_work", {rows_, work_in_vain}},
        {"norm_through_cat", {image_, [&](auto x) { return wide_norm_(cat(conv(x), other_conv(x))); }}},
        {"fold_batch_norm", {image_, [&](auto x) { return norm_(conv(x)); }}},
        {"relu_through_cat", {image_, [](auto x) { return cat(x + 1, x * 2).relu(); }}},
        {"fold_padding",
         {image_,
          [&](auto x) {
            return large_conv(at::constant_pad_nd(x, {1, 1, 1, 1}));
          }}},
        {"channels_last", {image_, [&](auto x) { return large_conv(x); }}},
        {"fuse_convolution", {image_, [&](auto x) { return conv(x).relu(); }}},
        {"separable_convolution", {image_, [&](auto x) { return conv(depthwise(x)); }, {&kFuseConvolution}}},
        {"pooling", {image_, [](auto x) { return at::max_pool2d(x, 3); }}},
        {"mkldnn_convolution", {image_, [&](auto x) { return conv(x).relu(); }}},
        {"scale_batch_norm", {image_, [&](auto x) { return norm_(x).relu(); }}},
        {"open_attention", {rows_, [&](auto x) { return attention(x.unsqueeze(0)); }}},
        {"merge_linears", {rows_, [&](auto x) { return linear(x) * other_linear(x); }}},
        {"matrix_linear", {rows_, [&](auto x) { return linear(x); }}},
        {"linear_activation", {rows_, [&](auto x) { return linear(x).relu(); }}},
        {"unneeded_copies", {rows_, [](auto x) { return x.slice(1, 0, 8).contiguous().exp(); }}},
        {"sum_of_products",
         {image_,
          [&](auto x) { return conv(depthwise(x)) + other_conv(depthwise(x * 2)); },
          {&kFuseConvolution},
          ours_are_faster()}},
        {"group_convolutions",
         {image_, [&](auto x) { return conv(x).exp() * other_conv(x); }, {}, ours_are_faster()}},
        {"cat_by_address", {image_, [](auto x) { return cat(x.sin(), x.cos()).exp(); }}},
        {"mkldnn_linear", {rows_, [&](auto x) { return linear(x).relu(); }, {}, ours_are_faster()}},
        {"pointwise_blocks", {rows_, [](auto x) { return (x * 2).relu(); }}},
        {"weights_once", {rows_, [&](auto x) { return x * bias_.exp(); }}},
    };
  }

  const at::Tensor image_ = torch::randn({1, 16, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast),
                   rows_ = torch::randn({4, 16});
  const at::Tensor weight_ = torch::randn({16, 16, 1, 1}), other_weight_ = torch::randn({16, 16, 1, 1}),
                   large_weight_ = torch::randn({16, 16, 3, 3}), filters_ = torch::randn({16, 1, 3, 3}),
                   matrix_ = torch::randn({16, 16}), other_matrix_ = torch::randn({16, 16}),
                   projection_ = torch::randn({48, 16}), projection_bias_ = torch::randn({48}),
                   bias_ = torch::randn({16});
  const Norm norm_{16}, wide_norm_{32};
};

const std::set<std::string_view> kHoldThere = {"out_of_place", "fuse_rows", "fuse_batch_norm",
                                               "fuse_pointwise", "fuse_foreach"};

TEST_F(TrainingMode, TheseRewritesHoldThere) {
  std::set<std::string_view> names;
  for (const Rewrite* rewrite : all_rewrites()) {
    if (rewrite->for_training) names.insert(rewrite->name);
  }
  EXPECT_EQ(names, kHoldThere);
}

TEST_F(TrainingMode, EveryOtherOneFiresInInferenceAlone) {
  const auto all_examples = examples();
  for (const Rewrite* const& rewrite : all_rewrites()) {
    if (rewrite->for_training) continue;
    SCOPED_TRACE(rewrite->name);
    ASSERT_TRUE(all_examples.contains(rewrite->name)) << "a rewrite without an example";
    const Example& example = all_examples.at(rewrite->name);
    const Program program = example.program();
    EXPECT_FALSE(rewrite->apply(program, example.inference).sites.empty()) << drawn(program);
    for (const bool tolerant : {false, true}) {
      const RewriteContext context =
          example.training(rewrite->on_cuda ? kGpu : c10::Device(c10::kCPU), tolerant);
      const AppliedRewrites applied = apply_rewrites(program, {&rewrite, 1}, example.inputs(), context);
      EXPECT_TRUE(applied.reports.empty());
      EXPECT_EQ(to_string(applied.program), to_string(program));
    }
  }
}

// Asked for all at once, too: none comes along with those that hold.
TEST_F(TrainingMode, OfAllOnlyThoseFire) {
  std::size_t fired = 0;
  for (const auto& [name, example] : examples()) {
    SCOPED_TRACE(name);
    const AppliedRewrites applied =
        apply_rewrites(example.program(), all_rewrites(), example.inputs(), example.training(kGpu));
    for (const RewriteReport& report : applied.reports) {
      EXPECT_TRUE(kHoldThere.contains(report.name)) << report.name;
      ++fired;
    }
  }
  EXPECT_GT(fired, 0u);
}

TEST_F(TrainingMode, OnACpuNoneFires) {
  for (const auto& [name, example] : examples()) {
    SCOPED_TRACE(name);
    const AppliedRewrites applied = apply_rewrites(example.program(), all_rewrites(), example.inputs(),
                                                   example.training(c10::kCPU, true));
    EXPECT_TRUE(applied.reports.empty());
  }
}

// A step of training changes its weights; arguments and tensors of its own a program may change in inference.
TEST_F(TrainingMode, IsThatOfProgramsThatWriteTensorsOutside) {
  const auto writes = [&](const Function& function) {
    return writes_outside(record({torch::randn({16})}, function));
  };
  EXPECT_TRUE(writes([&](const Tensors& in) -> Tensors { return {bias_.add_(in[0])}; }));
  EXPECT_TRUE(writes([&](const Tensors& in) -> Tensors {
    matrix_.select(0, 1).copy_(in[0]);
    return {in[0] * 2};
  }));
  EXPECT_FALSE(writes([&](const Tensors& in) -> Tensors { return {(in[0] * bias_).add_(1)}; }));
  EXPECT_FALSE(writes([&](const Tensors& in) -> Tensors { return {in[0].add_(bias_)}; }));
}

}  // namespace
}  // namespace nimble
