// Batch norms in training, where results may round otherwise than eager's.
#include <random>

#include "forced.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

const RewriteContext kTolerant{.device = c10::Device(c10::kCUDA, 0), .trains = true, .tolerant = true};

constexpr double kMomentum = 0.1, kEpsilon = 1e-5;

// What a layer has, and what it does to it.
struct Layer {
  at::Tensor weight = at::rand({3}) + 0.5, bias = at::randn({3}), mean = at::randn({3}),
             variance = at::rand({3}) + 0.5;

  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& x, bool trains = true) const {
    return at::native_batch_norm(x, weight, bias, mean, variance, trains, kMomentum, kEpsilon);
  }
  Tensors backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& batch_mean,
                   const at::Tensor& inverse) const {
    auto [x_gradient, weight_gradient, bias_gradient] = at::native_batch_norm_backward(
        gradient, x, weight, mean, variance, batch_mean, inverse, true, kEpsilon, {true, true, true});
    return {x_gradient, weight_gradient, bias_gradient};
  }

  void expect_statistics(const Layer& expected) const {
    EXPECT_TRUE(at::allclose(mean, expected.mean));
    EXPECT_TRUE(at::allclose(variance, expected.variance));
  }
  Layer copy() const { return {weight.clone(), bias.clone(), mean.clone(), variance.clone()}; }
};

class FuseBatchNorm : public RewriteTest {
 protected:
  AppliedRewrites trained(const Program& program, const RewriteContext& context = kTolerant) const {
    const std::vector<std::string> names = {"default"};
    AppliedRewrites applied = apply_rewrites(program, rewrites_named(names), inputs_, context);
    for (const RewriteReport& report : applied.reports) EXPECT_EQ(report.dropped, "") << report.name;
    return applied;
  }
  static std::size_t kernels_in(const Program& program) {
    return std::ranges::count_if(program.tasks, [](const Task& task) {
      return task.op.operator_name().name.starts_with("nimble::batch_norm_training");
    });
  }

  static bool has(const Program& program, std::string_view name) {
    return std::ranges::any_of(program.tasks, [&](const Task& task) { return is_call_of(task, name); });
  }

  using OfLayer = std::function<Tensors(const Layer& layer, const Tensors& inputs)>;

  void expect_drawn(const OfLayer& function, const std::string& picture) const {
    const Layer layer;
    const Program program = record(inputs_, [&](const Tensors& in) { return function(layer, in); });
    const AppliedRewrites applied = trained(program);
    EXPECT_EQ(drawn(applied.program), picture);
    EXPECT_FALSE(applied.exact);
    const Layer alike = layer.copy();
    const Tensors expected = function(alike, inputs_), given = run(applied.program, inputs_);
    ASSERT_EQ(given.size(), expected.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
      EXPECT_TRUE(at::allclose(given[i], expected[i], 1e-4, 1e-4)) << "result " << i;
    }
    layer.expect_statistics(alike);
  }
  void expect_kernels(std::size_t count, const OfLayer& function,
                      const RewriteContext& context = kTolerant) const {
    const Layer layer;
    const Program program = record(inputs_, [&](const Tensors& in) { return function(layer, in); });
    EXPECT_EQ(kernels_in(trained(program, context).program), count);
  }

  const Tensors inputs_ = {torch::randn({2, 3, 4, 4}), torch::randn({2, 3, 4, 4})};
};

TEST_F(FuseBatchNorm, TakesInTheActivationBehindIt) {
  for (const bool six : {false, true}) {
    expect_drawn(
        [=](const Layer& layer, const Tensors& in) -> Tensors {
          at::Tensor y = std::get<0>(layer.forward(in[0]));
          return {six ? at::hardtanh(y, 0, 6) : y.relu_()};
        },
        R"(
%0, %1, %2, %3 = nimble::batch_norm_training(input0, extern0, extern1, extern2, extern3)
return %0
)");
  }
}

// Before, as residual networks have it:
//   %0, %1, %2 = native_batch_norm(input0, extern0, extern1, extern2, extern3)
//   %0 = add_(%0, input1)
//   %0 = relu_(%0)
TEST_F(FuseBatchNorm, TakesInASumAndTheActivationBehindThat) {
  expect_drawn(
      [](const Layer& layer, const Tensors& in) -> Tensors {
        at::Tensor y = std::get<0>(layer.forward(in[0]));
        y += in[1];
        return {y.relu_()};
      },
      R"(
%0, %1, %2, %3 = nimble::batch_norm_training(input0, extern0, extern1, extern2, extern3, input1)
return %0
)");
}

// Before:
//   %0, %1, %2 = native_batch_norm(input0, extern0, extern1, extern2, extern3)
//   %3 = relu(%0)
//   %4 = threshold_backward(input1, %3)
//   %5, %6, %7 = native_batch_norm_backward(%4, input0, extern0, …, %1, %2)
TEST_F(FuseBatchNorm, TheWayBackTakesInThatThroughTheActivation) {
  for (const bool six : {false, true}) {
    expect_drawn(
        [=](const Layer& layer, const Tensors& in) -> Tensors {
          const auto [y, mean, inverse] = layer.forward(in[0]);
          const at::Tensor z = six ? at::hardtanh(y, 0, 6) : y.relu();
          const at::Tensor arriving =
              six ? at::hardtanh_backward(in[1], z, 0, 6) : at::threshold_backward(in[1], z, 0);
          Tensors results = layer.backward(arriving, in[0], mean, inverse);
          results.push_back(z);
          return results;
        },
        R"(
%0, %1, %2, %3 = nimble::batch_norm_training(input0, extern0, extern1, extern2, extern3)
%4, %5, %6, %7 = nimble::batch_norm_training_backward(input1, input0, extern0, extern1, %1, %2)
return %4 %5 %6 %0
)");
  }
}

TEST_F(FuseBatchNorm, WithASumTheWayBackThroughTheActivationStays) {
  // What arrives there is the gradient of both terms.
  expect_drawn(
      [](const Layer& layer, const Tensors& in) -> Tensors {
        const auto [y, mean, inverse] = layer.forward(in[0]);
        const at::Tensor z = (y + in[1]).relu();
        const at::Tensor arriving = at::threshold_backward(in[1], z, 0);
        Tensors results = layer.backward(arriving, in[0], mean, inverse);
        results.push_back(arriving);
        return results;
      },
      R"(
%0, %1, %2, %3 = nimble::batch_norm_training(input0, extern0, extern1, extern2, extern3, input1)
%4 = threshold_backward(input1, %0)
%5, %6, %7, %8 = nimble::batch_norm_training_backward(%4, input0, extern0, extern0, %1, %2)
return %5 %6 %7 %4
)");
}

TEST_F(FuseBatchNorm, NotWithoutAToleranceNorOutsideOfTraining) {
  const auto function = [](const Layer& layer, const Tensors& in) -> Tensors {
    return {std::get<0>(layer.forward(in[0])).relu()};
  };
  expect_kernels(1, function);
  RewriteContext exact = kTolerant, evaluating = kTolerant;
  exact.tolerant = false;
  expect_kernels(0, function, exact);
  evaluating.device = c10::kCPU;
  expect_kernels(0, function, evaluating);
  expect_kernels(0, [](const Layer& layer, const Tensors& in) -> Tensors {
    return {std::get<0>(layer.forward(in[0], /*trains=*/false)).relu()};
  });
}

TEST_F(FuseBatchNorm, NotAnActivationWhoseInputSomebodyElseReads) {
  const Layer layer;
  const Program program = record(inputs_, [&](const Tensors& in) -> Tensors {
    const at::Tensor y = std::get<0>(layer.forward(in[0]));
    return {y.relu(), y.sigmoid()};
  });
  const Program fused = trained(program).program;
  EXPECT_EQ(kernels_in(fused), 1u);
  EXPECT_TRUE(has(fused, "aten::relu"));
}

TEST_F(FuseBatchNorm, NotTheActivationIfWhatIsAddedChangesBeforeIt) {
  for (const bool changes : {false, true}) {
    const Layer layer;
    const Program program = record(inputs_, [&](const Tensors& in) -> Tensors {
      const at::Tensor added = in[1].clone();
      const at::Tensor sum = std::get<0>(layer.forward(in[0])) + added;
      if (changes) added[0].fill_(0);
      return {sum.relu(), added};
    });
    const Program fused = trained(program).program;
    EXPECT_EQ(kernels_in(fused), 1u);
    EXPECT_FALSE(has(fused, "aten::add"));
    EXPECT_EQ(has(fused, "aten::relu"), changes);
  }
}

TEST_F(FuseBatchNorm, NotTheWayBackThroughAnotherLayersActivation) {
  const Layer other;
  const auto mask_of = [&](bool own, const Layer& layer, const Tensors& in) -> Tensors {
    const auto [y, mean, inverse] = layer.forward(in[0]);
    const auto [y_of_other, mean_of_other, inverse_of_other] = other.forward(in[1]);
    const at::Tensor z = own ? y.relu() : y_of_other.relu();
    return layer.backward(at::threshold_backward(in[1], z, 0), in[0], mean, inverse);
  };
  for (const bool own : {true, false}) {
    const Layer layer;
    const Program program =
        record(inputs_, [&](const Tensors& in) -> Tensors { return mask_of(own, layer, in); });
    const Program fused = trained(program).program;
    EXPECT_EQ(has(fused, "aten::threshold_backward"), !own);
  }
}

TEST_F(FuseBatchNorm, NotWhereTheBiasChangesBeforeTheWayBack) {
  for (const bool changes : {false, true}) {
    const Layer layer;
    const Program program = record(inputs_, [&](const Tensors& in) -> Tensors {
      const auto [y, mean, inverse] = layer.forward(in[0]);
      const at::Tensor z = y.relu();
      if (changes) layer.bias.add_(1);
      return layer.backward(at::threshold_backward(in[1], z, 0), in[0], mean, inverse);
    });
    const Program fused = trained(program).program;
    EXPECT_EQ(has(fused, "aten::threshold_backward"), changes);
  }
}

TEST_F(FuseBatchNorm, StatisticsThatAreReadInBetweenKeepTheirPlace) {
  // The sum would come after somebody looked at them.
  expect_drawn(
      [](const Layer& layer, const Tensors& in) -> Tensors {
        const at::Tensor y = std::get<0>(layer.forward(in[0]));
        const at::Tensor seen = layer.mean.exp();
        return {y + in[1], seen};
      },
      R"(
%0, %1, %2, %3 = nimble::batch_norm_training(input0, extern0, extern1, extern2, extern3)
%4 = exp(extern2)
%5 = add(%0, input1)
return %5 %4
)");
}

TEST_F(FuseBatchNorm, NotWhatDoesNotLieInARow) {
  const auto channels_last = [](const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); };
  expect_kernels(0, [&](const Layer& layer, const Tensors& in) -> Tensors {
    return {std::get<0>(layer.forward(channels_last(in[0]))).relu()};
  });
  expect_kernels(0, [](const Layer&, const Tensors& in) -> Tensors {
    return {std::get<0>(at::native_batch_norm(in[0], {}, {}, {}, {}, true, kMomentum, kEpsilon)).relu()};
  });
}

TEST_F(FuseBatchNorm, TakesNothingInThatMeasuresSlower) {
  const Layer layer;
  const Program program = record(
      inputs_, [&](const Tensors& in) -> Tensors { return {std::get<0>(layer.forward(in[0])).relu()}; });
  for (const Nanoseconds ours : {10, 100}) {
    RewriteContext measured = kTolerant;
    measured.device = c10::kCPU;
    measured.measure = [=](std::span<const Buffer> buffers, std::span<const Task> tasks) -> Nanoseconds {
      for (const Buffer& buffer : buffers) EXPECT_FALSE(buffer.outside.defined());  // statistics stay
      return tasks[0].op.operator_name().name.starts_with("nimble::") ? ours : 50;
    };
    EXPECT_EQ(kernels_in(kFuseBatchNorm.apply(program, measured).program), ours < 50 ? 1u : 0u);
  }
}

// Layers in a row with sums between them, forward and back, against autograd in float64.
TEST_F(FuseBatchNorm, RandomNetworksAndTheirGradients) {
  std::mt19937 random(7);
  const auto chance = [&](double probability) { return std::bernoulli_distribution(probability)(random); };
  for (int round = 0; round < 20; ++round) {
    std::vector<Layer> layers(1 + random() % 4);
    std::vector<int> kinds;
    for (std::size_t i = 0; i < layers.size(); ++i)
      kinds.push_back(static_cast<int>(random() % 3) + (chance(0.4) ? 3 : 0));
    const auto step = [&](const std::vector<Layer>& of, const at::Tensor& input, const at::Tensor& gradient) {
      std::vector<at::Tensor> xs = {input}, zs, means, inverses;
      for (std::size_t i = 0; i < of.size(); ++i) {
        auto [y, mean, inverse] = of[i].forward(xs.back());
        if (kinds[i] >= 3) y = y + xs.back();
        zs.push_back(kinds[i] % 3 == 0 ? y : kinds[i] % 3 == 1 ? y.relu() : at::hardtanh(y, 0, 6));
        means.push_back(mean);
        inverses.push_back(inverse);
        xs.push_back(zs.back() * 0.5);
      }
      Tensors results = {xs.back()};
      at::Tensor back = gradient;
      for (std::size_t i = of.size(); i-- > 0;) {
        back = back * 0.5;
        const at::Tensor arriving = kinds[i] % 3 == 0   ? back
                                    : kinds[i] % 3 == 1 ? at::threshold_backward(back, zs[i], 0)
                                                        : at::hardtanh_backward(back, zs[i], 0, 6);
        const Tensors gradients = of[i].backward(arriving, xs[i], means[i], inverses[i]);
        results.insert(results.end(), gradients.begin() + 1, gradients.end());
        back = kinds[i] >= 3 ? gradients[0] + arriving : gradients[0];
      }
      results.push_back(back);
      return results;
    };
    const Program program = record(inputs_, [&](const Tensors& in) { return step(layers, in[0], in[1]); });
    const Program fused = trained(program).program;
    EXPECT_EQ(kernels_in(fused), 2 * layers.size());
    std::vector<Layer> alike, exact;
    for (const Layer& layer : layers) {
      alike.push_back(layer.copy());
      exact.push_back({layer.weight.to(at::kDouble), layer.bias.to(at::kDouble), layer.mean.to(at::kDouble),
                       layer.variance.to(at::kDouble)});
    }
    const Tensors given = run(fused, inputs_), eager = step(alike, inputs_[0], inputs_[1]);
    const Tensors reference = step(exact, inputs_[0].to(at::kDouble), inputs_[1].to(at::kDouble));
    for (std::size_t i = 0; i < given.size(); ++i) {
      const auto error = [&](const at::Tensor& of) {
        return (of.to(at::kDouble) - reference[i]).abs().max().item<double>();
      };
      EXPECT_LE(error(given[i]), 2 * error(eager[i]) + 1e-5 * reference[i].abs().max().item<double>()) << i;
    }
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i].expect_statistics(alike[i]);
  }
}

}  // namespace
}  // namespace nimble
