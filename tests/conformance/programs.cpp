#include "tests/conformance/programs.h"

namespace nimble::testing {
namespace {

using at::indexing::None;
using at::indexing::Slice;

at::Tensor weight(at::IntArrayRef sizes, c10::Device device) {
  return at::randn(sizes, at::TensorOptions(device)).mul_(0.1);
}

std::function<Tensors()> normal_inputs(std::vector<std::vector<std::int64_t>> shapes, c10::Device device) {
  return [shapes, device] {
    Tensors inputs;
    for (const auto& shape : shapes) inputs.push_back(at::randn(shape, at::TensorOptions(device)));
    return inputs;
  };
}

}  // namespace

//            ┌ 1x1 ─────────────┐
//   x ─ 3x3 ─┼ 1x1 ─ 3x3 ───────┼ cat ─ … ─ mean ─ linear
//            ├ 1x1 ─ 3x3 ─ 3x3 ─┤
//            └ pool ─ 1x1 ──────┘
Subject branchy_convnet(c10::Device device) {
  struct Net {
    at::Tensor stem, linear, bias;
    std::vector<std::vector<Tensors>> blocks;
  };
  auto net = std::make_shared<Net>();
  net->stem = weight({32, 3, 3, 3}, device);
  for (int block = 0; block < 3; ++block) {
    std::vector<Tensors> branches;
    for (int branch = 0; branch < 4; ++branch) {
      Tensors layers = {weight({8, 32, 1, 1}, device)};
      for (int layer = 0; layer < branch % 3; ++layer) layers.push_back(weight({8, 8, 3, 3}, device));
      branches.push_back(std::move(layers));
    }
    net->blocks.push_back(std::move(branches));
  }
  net->linear = weight({10, 32}, device);
  net->bias = weight({10}, device);
  auto forward = [net](const Tensors& inputs) -> Tensors {
    at::Tensor x = at::relu(at::conv2d(inputs[0], net->stem, {}, 1, 1));
    for (const auto& block : net->blocks) {
      Tensors outputs;
      for (std::size_t branch = 0; branch < block.size(); ++branch) {
        at::Tensor y = branch == 3 ? at::max_pool2d(x, {3, 3}, {1, 1}, {1, 1}) : x;
        for (const at::Tensor& layer : block[branch])
          y = at::relu(at::conv2d(y, layer, {}, 1, layer.size(2) / 2));
        outputs.push_back(y);
      }
      x = at::cat(outputs, 1);
    }
    return {at::linear(x.mean({2, 3}), net->linear, net->bias)};
  };
  return {forward, normal_inputs({{2, 3, 14, 14}}, device), {}};
}

Subject parallel_matmul_chains(c10::Device device) {
  auto weights = std::make_shared<Tensors>();
  for (int i = 0; i < 24; ++i) weights->push_back(weight({96, 96}, device));
  auto forward = [weights](const Tensors& inputs) -> Tensors {
    Tensors ends;
    for (int chain = 0; chain < 4; ++chain) {
      at::Tensor x = inputs[0];
      for (int i = 0; i < 6; ++i) x = at::addmm(inputs[1], x, (*weights)[chain * 6 + i]);
      ends.push_back(x);
    }
    return {ends[0] + ends[1] + ends[2] + ends[3]};
  };
  return {forward, normal_inputs({{64, 96}, {96}}, device), {}};
}

Subject dropout_in_branches(c10::Device device) {
  auto forward = [](const Tensors& inputs) -> Tensors {
    Tensors branches;
    for (int branch = 0; branch < 4; ++branch) {
      at::Tensor x = at::dropout(inputs[0] * (branch + 1), 0.3 + 0.1 * branch, true);
      branches.push_back(at::dropout(x.tanh(), 0.5, true));
    }
    return {at::cat(branches), at::rand_like(inputs[0]), at::bernoulli(at::sigmoid(inputs[0]))};
  };
  return {forward, normal_inputs({{8, 33}}, device), {}};
}

Subject updates_of_outside_tensors(c10::Device device) {
  auto count = at::zeros({}, at::TensorOptions(device).dtype(at::kLong));
  auto mean = at::zeros({16}, at::TensorOptions(device));
  auto table = at::zeros({4, 16}, at::TensorOptions(device));
  auto forward = [=](const Tensors& inputs) mutable -> Tensors {
    count.add_(1);
    mean.mul_(0.9).add_(inputs[0].mean(0), 0.1);
    table[1].copy_(mean);
    table.index({Slice(2, 4)}).add_(inputs[0].index({Slice(0, 2)}));
    at::Tensor seen = table.sum(0) + mean;
    table.index({Slice(), Slice(0, 8)}).mul_(0.5);
    return {seen, count.clone()};
  };
  return {forward, normal_inputs({{5, 16}}, device), {count, mean, table}};
}

// Forward, loss, backward and SGD with momentum.
Subject training_step(c10::Device device) {
  struct Model {
    Tensors parameters, momentum;
    at::Tensor running_mean, running_var;
  };
  auto model = std::make_shared<Model>();
  for (at::Tensor parameter : {weight({16, 3, 3, 3}, device), at::ones({16}, at::TensorOptions(device)),
                               at::zeros({16}, at::TensorOptions(device)), weight({5, 16}, device)}) {
    model->momentum.push_back(at::zeros_like(parameter));
    model->parameters.push_back(parameter.set_requires_grad(true));
    model->parameters.back().mutable_grad() = at::zeros_like(parameter);
  }
  model->running_mean = at::zeros({16}, at::TensorOptions(device));
  model->running_var = at::ones({16}, at::TensorOptions(device));
  auto step = [model](const Tensors& inputs) -> Tensors {
    const at::AutoGradMode with_grad(true);
    const Tensors& p = model->parameters;
    for (const at::Tensor& parameter : p) parameter.grad().zero_();
    at::Tensor x = at::conv2d(inputs[0], p[0], {}, 2, 1);
    x = at::batch_norm(x, p[1], p[2], model->running_mean, model->running_var, true, 0.1, 1e-5, true);
    x = at::dropout(at::relu(x).mean({2, 3}), 0.2, true);
    at::Tensor loss = at::cross_entropy_loss(at::linear(x, p[3]), inputs[1]);
    loss.backward();
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < p.size(); ++i) {
      model->momentum[i].mul_(0.9).add_(p[i].grad());
      p[i].add_(model->momentum[i], -0.05);
    }
    return {loss.detach()};
  };
  auto inputs = [device]() -> Tensors {
    return {at::randn({4, 3, 12, 12}, at::TensorOptions(device)),
            at::randint(0, 5, {4}, at::TensorOptions(device).dtype(at::kLong))};
  };
  Tensors outside = model->momentum;
  outside.insert(outside.end(), {model->running_mean, model->running_var});
  for (const at::Tensor& parameter : model->parameters) {
    outside.push_back(parameter.detach());
    outside.push_back(parameter.grad());
  }
  return {step, inputs, outside};
}

namespace {

Subject views_and_partial_writes(c10::Device device) {
  auto forward = [device](const Tensors& inputs) -> Tensors {
    const at::Tensor& x = inputs[0];
    at::Tensor y = at::zeros({6, 8}, at::TensorOptions(device));
    y.index({Slice(), Slice(0, 4)}).copy_(x * 2);
    y.index({Slice(), Slice(4, 8)}).copy_(x + 1);
    y.t()[3].mul_(-1);
    at::Tensor z = at::mm(y.t(), y);
    at::Tensor diagonal = z.diagonal();
    diagonal.add_(1);
    return {z, y.view({2, 24}).sum(1), at::as_strided(y, {3, 3}, {1, 2}, 5).clone()};
  };
  return {forward, normal_inputs({{6, 4}}, device), {}};
}

Subject results_that_alias(c10::Device device) {
  auto parameter = weight({4, 6}, device);
  auto forward = [parameter](const Tensors& inputs) -> Tensors {
    at::Tensor y = at::mm(inputs[0], parameter);
    return {inputs[0], inputs[0].t(), parameter, parameter.t(), y, y, y.index({Slice(1, 3)}), y.t()};
  };
  return {forward, normal_inputs({{5, 4}}, device), {}};
}

Subject empty_tensors(c10::Device device) {
  auto forward = [](const Tensors& inputs) -> Tensors {
    at::Tensor nothing = inputs[0].index({Slice(0, 0)});
    return {at::cat({nothing, inputs[0], inputs[1]}), nothing.sum(0), at::mm(nothing, inputs[0].t()),
            inputs[1] * 2};
  };
  return {forward, normal_inputs({{3, 4}, {0, 4}}, device), {}};
}

Subject inputs_of_every_shape(c10::Device device) {
  auto forward = [](const Tensors& inputs) -> Tensors {
    return {inputs[0] + inputs[1], inputs[2].sum(0), inputs[3] * inputs[0], inputs[4].to(at::kFloat).sum()};
  };
  auto inputs = [device]() -> Tensors {
    const at::TensorOptions options(device);
    at::Tensor large = at::randn({100, 12}, options);
    return {large.index({Slice(40, 44), Slice(2, 7)}), at::randn({5, 4}, options).t(),
            at::randn({1, 6}, options).expand({7, 6}), at::randn({5}, options),
            at::randint(0, 9, {3}, options.dtype(at::kLong))};
  };
  return {forward, inputs, {}};
}

Subject input_that_is_written(c10::Device device) {
  auto forward = [](const Tensors& inputs) -> Tensors {
    at::Tensor x = inputs[0];
    x.mul_(2);
    x[1].add_(1);
    return {x.sum(), x};
  };
  return {forward, normal_inputs({{4, 5}}, device), {}};
}

Subject attention(c10::Device device) {
  auto qkv = weight({96, 32}, device), out = weight({32, 32}, device);
  auto forward = [=](const Tensors& inputs) -> Tensors {
    at::Tensor x = at::linear(inputs[0], qkv).view({2, 9, 3, 4, 8}).permute({2, 0, 3, 1, 4});
    at::Tensor y = at::scaled_dot_product_attention(x[0], x[1], x[2]);
    y = y.transpose(1, 2).reshape({2, 9, 32});
    return {at::layer_norm(at::linear(y, out) + inputs[0], {32})};
  };
  return {forward, normal_inputs({{2, 9, 32}}, device), {}};
}

Subject constants_and_indices(c10::Device device) {
  auto table = weight({10, 4}, device);
  auto forward = [table, device](const Tensors& inputs) -> Tensors {
    at::Tensor order = at::arange(4, at::TensorOptions(device).dtype(at::kLong)).flip(0);
    at::Tensor rows = at::embedding(table, inputs[0]);
    return {rows.index({None, Slice(), order}),
            at::scatter_add(at::zeros({6, 4}, at::TensorOptions(device)), 0,
                            inputs[0].unsqueeze(1).expand({-1, 4}) % 6, rows)};
  };
  auto inputs = [device]() -> Tensors {
    return {at::randperm(10, at::TensorOptions(device).dtype(at::kLong)).index({Slice(0, 5)}).clone()};
  };
  return {forward, inputs, {}};
}

Subject made_empty_and_filled(c10::Device device) {
  auto forward = [device](const Tensors& inputs) -> Tensors {
    at::Tensor result = at::empty({3, 4}, at::TensorOptions(device));
    at::Tensor inner = at::empty({3, 4}, at::TensorOptions(device));
    at::add_out(inner, inputs[0], inputs[0]);
    at::sin_out(result, inner);
    return {result};
  };
  return {forward, normal_inputs({{3, 4}}, device), {}};
}

// This operator puts other tensors into the list of indices that it is given.
Subject list_that_is_written(c10::Device device) {
  auto forward = [](const Tensors& inputs) -> Tensors {
    const c10::List<std::optional<at::Tensor>> indices({inputs[1].unsqueeze(1), inputs[2].unsqueeze(0)});
    const at::Tensor mask = (inputs[1] < 4).unsqueeze(1).logical_and((inputs[2] < 5).unsqueeze(0));
    return {at::_unsafe_masked_index_put_accumulate(inputs[0], mask, indices, inputs[3])};
  };
  auto inputs = [device]() -> Tensors {
    const auto numbers = at::TensorOptions(device), positions = numbers.dtype(at::kLong);
    return {at::randn({5, 5}, numbers), at::randint(0, 8, {10}, positions),
            at::randint(0, 8, {10}, positions), at::randn({10, 10}, numbers)};
  };
  return {forward, inputs, {}};
}

}  // namespace

const std::vector<NamedSubject>& subjects() {
  static const std::vector<NamedSubject> all = {
      {"BranchyConvnet", branchy_convnet},
      {"ParallelMatmulChains", parallel_matmul_chains},
      {"DropoutInBranches", dropout_in_branches},
      {"UpdatesOfOutsideTensors", updates_of_outside_tensors},
      {"TrainingStep", training_step},
      {"ViewsAndPartialWrites", views_and_partial_writes},
      {"ResultsThatAlias", results_that_alias},
      {"EmptyTensors", empty_tensors},
      {"InputsOfEveryShape", inputs_of_every_shape},
      {"InputThatIsWritten", input_that_is_written},
      {"Attention", attention},
      {"ConstantsAndIndices", constants_and_indices},
      {"MadeEmptyAndFilled", made_empty_and_filled},
      {"ListThatIsWritten", list_that_is_written},
  };
  return all;
}

}  // namespace nimble::testing
