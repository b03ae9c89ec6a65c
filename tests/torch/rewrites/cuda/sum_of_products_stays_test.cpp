// Sums of products that stay what they are.
#include "sum_of_products.h"

namespace nimble {
namespace {

TEST_F(SumOfProducts, NotIfASummandIsReadByAnother) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_);
    return {(first + conv(depthwise(in[1]), v_, bias_v_)).exp(), first.sin()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_);
    return {first + first};
  });
}

TEST_F(SumOfProducts, NotOfNumbersThatAreComplex) {
  const Forced result = summed([&](const Tensors& in) -> Tensors {
    const at::Tensor z = at::complex(in[0], in[1]);
    return {sum(in).exp(), at::real(at::add(z, z.conj(), c10::complex<double>(0, 2))).exp()};
  });
  EXPECT_EQ(result.sites.size(), 1u);
}

TEST_F(SumOfProducts, NotIfASummandIsAResultOfTheProgram) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_), second = conv(depthwise(in[1]), v_);
    return {(first + second).exp(), first};
  });
}

TEST_F(SumOfProducts, NotIfAnInputIsReadByAnotherOrIsAResult) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = depthwise(in[0]);
    return {(conv(x, w_) + conv(depthwise(in[1]), v_)).exp(), x.sin()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = depthwise(in[0]);
    return {(conv(x, w_) + conv(depthwise(in[1]), v_)).exp(), x};
  });
  const at::Tensor square = weights(16), other = weights(16);
  expect_untouched([&](const Tensors& in) -> Tensors {  // it is added as well
    const at::Tensor x = depthwise(in[1]);
    return {(conv(depthwise(in[0]), square) + (x + conv(x, other))).exp()};
  });
}

TEST_F(SumOfProducts, NotOfTheSameInput) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = depthwise(in[0]);
    return {(conv(x, w_) + conv(x, v_)).exp()};
  });
}

TEST_F(SumOfProducts, NotOfAnInputThatNobodyCanWriteToASlice) {
  const at::Tensor of_two_groups = weights(16, 8, 3), weight = image();
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> makers = {
      [](const at::Tensor& x) { return x; },
      [](const at::Tensor& x) { return at::softmax(x, 1); },
      [&](const at::Tensor& x) { return conv(x, of_two_groups, {}, 1, 1, /*groups=*/2); },
      [](const at::Tensor& x) {
        return at::cat({x.sin(), x.cos()}, 1).slice(1, 8, 24);
      },
      [&](const at::Tensor&) { return weight.sin(); },  // made once, before the program runs
  };
  for (const auto& make : makers) {
    expect_untouched([&](const Tensors& in) -> Tensors {
      return {(conv(depthwise(in[0]), w_, bias_w_) + conv(make(in[1]), v_, bias_v_)).exp()};
    });
  }
}

TEST_F(SumOfProducts, NotOfSomeChannelsOfWhatWasMade) {
  const at::Tensor narrow = weights(8, 8);
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), w_) + conv(in[1].sin().slice(1, 0, 8), narrow)).exp()};
  });
}

TEST_F(SumOfProducts, NotIfAnInputIsChangedInPlace) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[1].sin();
    const at::Tensor sum = conv(depthwise(in[0]), w_) + conv(x, v_);
    x.select(1, 0).zero_();
    return {sum.exp()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    const at::Tensor x = in[1].sin();
    x.select(1, 0).zero_();
    return {(conv(depthwise(in[0]), w_) + conv(x, v_)).exp()};
  });
}

TEST_F(SumOfProducts, NotIfWhatElseIsAddedIsChangedInBetween) {
  const auto function = [&](bool changes) -> Function {
    return [=, this](const Tensors& in) -> Tensors {
      const at::Tensor term = in[0].slice(1, 0, 8).sin();
      const at::Tensor first = conv_and_sum(depthwise(in[0]), w_, term);
      if (changes) term.select(1, 0).zero_();
      return {conv_and_sum(depthwise(in[1]), v_, first).exp()};
    };
  };
  EXPECT_EQ(times_fired(function(false), Times{}.context()), 1u);
  expect_untouched(function(true));
}

TEST_F(SumOfProducts, NotWithAnActivationBeforeTheSum) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), w_, bias_w_).relu() + conv(depthwise(in[1]), v_, bias_v_)).exp()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), w_).sigmoid() + conv(depthwise(in[1]), v_).sigmoid()).exp()};
  });
}

TEST_F(SumOfProducts, NotWhereOneCountsMoreThanTheOtherOrIsTakenAway) {
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {at::add(conv(depthwise(in[0]), w_), conv(depthwise(in[1]), v_), 2).exp()};
  });
  expect_untouched([&](const Tensors& in) -> Tensors {
    return {(conv(depthwise(in[0]), w_) - conv(depthwise(in[1]), v_)).exp()};
  });
}

TEST_F(SumOfProducts, NotOfDifferentPixels) {
  const auto pixel = [&](const Tensors& in) {  // stands beside each of the others
    return conv(depthwise(in[1]).slice(2, 0, 1).slice(3, 0, 1).sin(), v_);
  };
  expect_untouched(
      [&](const Tensors& in) -> Tensors { return {(conv(depthwise(in[0]), w_) + pixel(in)).exp()}; });
  expect_untouched(
      [&](const Tensors& in) -> Tensors { return {conv_and_sum(depthwise(in[0]), w_, pixel(in)).exp()}; });
}

TEST_F(SumOfProducts, NotWithLargerFiltersStridesPaddingOrGroups) {
  const at::Tensor larger = weights(8, 16, 3), grouped = weights(8, 8);
  const auto both = [&](const std::function<at::Tensor(const at::Tensor&)>& product) {
    expect_untouched([&](const Tensors& in) -> Tensors {
      return {(product(depthwise(in[0])) + product(depthwise(in[1]))).exp()};
    });
  };
  both([&](const at::Tensor& x) { return conv(x, larger, {}, 1, 1); });
  both([&](const at::Tensor& x) { return conv(x, w_, {}, 2); });
  both([&](const at::Tensor& x) { return conv(x, w_, {}, 1, 1); });
  both([&](const at::Tensor& x) { return conv(x, grouped, {}, 1, 0, /*groups=*/2); });
  const at::Tensor turned = torch::randn({16, 8, 1, 1}) / 4;
  both([&](const at::Tensor& x) { return at::conv_transpose2d(x, turned); });
}

TEST_F(SumOfProducts, NotWithWeightsThatTheProgramMakesOrWrites) {
  const auto function = [&](bool makes_weight, bool makes_bias) -> Function {
    return [=, this](const Tensors& in) -> Tensors {
      const at::Tensor w = makes_weight ? w_ * in[0].mean() : w_,
                       bias = makes_bias ? bias_w_ * in[0].mean() : bias_w_;
      return {conv_and_sum(depthwise(in[0]), w, conv(depthwise(in[1]), v_), bias).exp()};
    };
  };
  EXPECT_EQ(times_fired(function(false, false), Times{}.context()), 1u);
  expect_untouched(function(true, false));
  expect_untouched(function(false, true));
  const at::Tensor weight = w_.clone();
  const Function writes = [&](const Tensors& in) -> Tensors {
    const at::Tensor sum = conv(depthwise(in[0]), weight) + conv(depthwise(in[1]), v_);
    weight.add_(1e-3);
    return {sum.exp()};
  };
  EXPECT_EQ(times_fired(writes, Times{}.context()), 0u);
}

TEST_F(SumOfProducts, NotWhereChannelsOfAPixelLieApart) {
  const Tensors contiguous = {images_[0].contiguous(), images_[1].contiguous()};
  const Function function = [&](const Tensors& in) -> Tensors {
    return {(conv(in[0].sin(), w_) + conv(in[1].cos(), v_)).exp()};
  };
  EXPECT_EQ(forced(function, images_, kSumOfProducts, {}, Times{}.context()).sites.size(), 1u);
  EXPECT_EQ(forced(function, contiguous, kSumOfProducts, {}, Times{}.context()).sites.size(), 0u);
}

TEST_F(SumOfProducts, InSinglePrecisionOnlyWhereTF32IsAllowed) {
  struct Disallow {
    bool before = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
    Disallow() { at::globalContext().setAllowTF32CuDNN(false); }
    ~Disallow() { at::globalContext().setAllowTF32CuDNN(before); }
  };
  const Disallow disallow;
  expect_untouched(two());
  const auto half = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16); };
  const at::Tensor w = half(w_), v = half(v_), bias_w = half(bias_w_), bias_v = half(bias_v_);
  const Function in_half = [&](const Tensors& in) -> Tensors {
    return {(conv(in[0].sin(), w, bias_w) + conv(in[1].cos(), v, bias_v)).exp()};
  };
  const Tensors images = {half(images_[0]), half(images_[1])};
  const Forced result = forced(in_half, images, kSumOfProducts, kBefore, Times{}.context());
  EXPECT_EQ(result.sites.size(), 1u);
  expect_same(result.program, in_half, images, 0.1);
}

TEST_F(SumOfProducts, NotAcrossPartsOfTheProgram) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor first = conv(depthwise(in[0]), w_, bias_w_);
    return {(first + conv(depthwise(in[1].sin()), v_, bias_v_)).exp()};
  };
  const Program apart =
      forced(function, images_, kFuseConvolution, {&kChannelsLast}, Times{}.context()).program;
  EXPECT_EQ(operators(apart),
            (std::vector<std::string>{"nimble::depthwise_convolution", "nimble::pointwise_convolution",
                                      "aten::sin", "nimble::depthwise_convolution",
                                      "nimble::pointwise_convolution", "aten::exp"}));
  for (std::size_t cut = 1; cut < apart.tasks.size(); ++cut) {
    Program in_parts = apart;
    for (std::size_t t = cut; t < in_parts.tasks.size(); ++t) in_parts.tasks[t].part = 1;
    const std::size_t fired = kSumOfProducts.apply(in_parts, Times{}.context()).sites.size();
    EXPECT_EQ(fired, cut == 5 ? 1u : 0u) << "between " << cut - 1 << " and " << cut;
  }
}

TEST_F(SumOfProducts, NotInTraining) {
  const Program program = record(images_, [&](const Tensors& in) -> Tensors {
    return {(conv(in[0].sin(), w_) + conv(in[1].cos(), v_)).exp()};
  });
  RewriteContext like_a_gpu = Times{}.context();
  like_a_gpu.device = c10::Device(c10::kCUDA, 0);
  const Rewrite* const rewrites[] = {&kSumOfProducts};
  EXPECT_TRUE(kSumOfProducts.is_for(like_a_gpu.device));
  EXPECT_FALSE(kSumOfProducts.is_for(c10::kCPU));
  EXPECT_EQ(kSumOfProducts.apply(program, like_a_gpu).sites.size(), 1u);
  like_a_gpu.trains = true;
  EXPECT_TRUE(apply_rewrites(program, rewrites, images_, like_a_gpu).reports.empty());
}

}  // namespace
}  // namespace nimble
