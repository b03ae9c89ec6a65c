#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/uses.h"
#include "rewritten.h"

namespace nimble {
namespace {

class NormThroughCat : public RewriteTest {
 protected:
  at::Tensor norm(const at::Tensor& x, bool training = false) const {
    return at::batch_norm(x, gamma_, beta_, mean_, variance_, training, 0.1, 1e-5, false);
  }
  at::Tensor first(const at::Tensor& x) const { return at::conv2d(x, first_); }
  at::Tensor second(const at::Tensor& x) const { return at::conv2d(x, second_); }
  std::size_t fired_on(const Function& function) { return fired(function, image_, "norm_through_cat"); }

  const Tensors image_ = {torch::randn({2, 4, 5, 5})};
  const at::Tensor first_ = torch::randn({3, 4, 1, 1}), second_ = torch::randn({5, 4, 1, 1});
  const at::Tensor gamma_ = torch::randn({8}), beta_ = torch::randn({8}), mean_ = torch::randn({8}),
                   variance_ = torch::rand({8}) + 0.5;
};

TEST_F(NormThroughCat, FoldsIntoEachConvolution) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor a = first(in[0]), b = second(in[0]);
    return {norm(at::cat({a, b}, 1))};
  };
  const Program program = rewritten(function, image_, {"norm_through_cat", "fold_batch_norm"});
  EXPECT_EQ(drawn(program), R"(
%0 = convolution(input0, derived0, derived1)
%1 = convolution(input0, derived2, derived3)
%2 = cat(%0, %1)
return %2
)");
  EXPECT_TRUE(at::allclose(run(program, image_)[0], function(image_)[0], 1e-4, 1e-4));
  const Program unfolded = rewritten(function, image_, {"norm_through_cat"});
  EXPECT_TRUE(at::allclose(run(unfolded, image_)[0], function(image_)[0], 1e-5, 1e-5));
}

TEST_F(NormThroughCat, WithNumbersThatAreMadeBehindTheConcatenation) {
  const Function function = [&](const Tensors& in) -> Tensors {
    const at::Tensor both = at::cat({first(in[0]), second(in[0])}, 1);
    return {at::batch_norm(both, gamma_ + 1, beta_, mean_, variance_, false, 0.1, 1e-5, false)};
  };
  EXPECT_EQ(fired_on(function), 1u);
  const Program program = rewritten(function, image_, {"norm_through_cat"});
  EXPECT_TRUE(at::allclose(run(program, image_)[0], function(image_)[0], 1e-5, 1e-5));
}

// As norms of half precision have them on a GPU.
TEST_F(NormThroughCat, StatisticsOfEachPartAreOfItsChannels) {
  Program program = record(image_, [&](const Tensors& in) -> Tensors {
    return {norm(at::cat({first(in[0]), second(in[0])}, 1))};
  });
  for (const std::size_t statistic : {1, 2}) {
    auto& ref = std::get<TensorRef>(program.tasks.back().results[statistic]);
    ref.sizes = {8};
    ref.strides = {1};
    program.buffers[ref.buffer.index()].bytes = 8 * sizeof(float);
  }
  std::vector<at::DimVector> made;
  for (const Task& task : kNormThroughCat.apply(program, {}).program.tasks) {
    if (!is_call_of(task, "aten::native_batch_norm")) continue;
    for (const std::size_t statistic : {1, 2}) {
      made.push_back(std::get<TensorRef>(task.results[statistic]).sizes);
    }
  }
  EXPECT_EQ(made, (std::vector<at::DimVector>{{3}, {3}, {5}, {5}}));
}

TEST_F(NormThroughCat, NotWhereAPartCouldNotFold) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {norm(at::cat({in[0], in[0].relu()}, 1))};
            }),
            0u);
}

TEST_F(NormThroughCat, NotIfSomebodyElseLooks) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor both = at::cat({first(in[0]), second(in[0])}, 1);
              return {norm(both), both};
            }),
            0u);
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              const at::Tensor a = first(in[0]);
              return {norm(at::cat({a, second(in[0])}, 1)), a};
            }),
            0u);
}

TEST_F(NormThroughCat, NotInTrainingAndNotAlongAnotherDimension) {
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {norm(at::cat({first(in[0]), second(in[0])}, 1), true)};
            }),
            0u);
  const at::Tensor wide = torch::randn({8, 4, 1, 1});
  EXPECT_EQ(fired_on([&](const Tensors& in) -> Tensors {
              return {norm(at::cat({at::conv2d(in[0], wide), at::conv2d(in[0] + 1, wide)}, 0))};
            }),
            0u);
}

}  // namespace
}  // namespace nimble
