// A batch norm in inference multiplies and shifts each channel by numbers that do not depend on the input: so
// can the weights of the convolution or linear layer before it, or of the one behind it.
//
//   %1 = convolution(input0, w, b, …)      %3, %4 = nimble::fold_batch_norm(w, b, gamma, beta, mean, var, …)
//   %2 = native_batch_norm(%1, …)    ──▶   %2 = convolution(input0, %3, %4, …)
//
//   %1 = native_batch_norm(input0, …)      %3, %4 = nimble::fold_batch_norm_before(w, b, gamma, beta, …)
//   %2 = convolution(%1, w, b, …)    ──▶   %2 = convolution(input0, %3, %4, …)
//
// The second only without padding: what is padded is zero behind the batch norm, not before it.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/batch_norm.h"
#include "nimble/torch/rewrites/convolution.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/linear_layer.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

at::Tensor in_double(const std::optional<at::Tensor>& bias, const at::Tensor& like) {
  return bias && bias->defined() ? bias->to(at::kDouble) : at::zeros_like(like);
}

// Numbers by channel, so that they broadcast over a weight of `dimensions` dimensions whose dimension `dim`
// counts the channels of one group, and dimension 0 those of the other side, group by group.
at::Tensor along(const at::Tensor& numbers, std::int64_t dim, std::int64_t groups, std::int64_t others,
                 std::int64_t dimensions) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(dimensions), 1);
  if (dim == 0) {
    shape[0] = -1;
    return numbers.view(shape);
  }
  const at::Tensor by_group = numbers.view({groups, 1, -1}).expand({groups, others / groups, -1});
  shape[0] = others;
  shape[1] = -1;
  return by_group.reshape(shape);
}

// `dim` is where the weight counts its output channels: 0, or 1 where it is transposed.
std::tuple<at::Tensor, at::Tensor> fold_batch_norm(const at::Tensor& weight,
                                                   const std::optional<at::Tensor>& bias,
                                                   const std::optional<at::Tensor>& gamma,
                                                   const std::optional<at::Tensor>& beta,
                                                   const at::Tensor& mean, const at::Tensor& variance,
                                                   double eps, std::int64_t dim, std::int64_t groups) {
  const auto [scale, shift] = batch_norm::scale_and_shift(gamma, beta, mean, variance, eps);
  const at::Tensor factor = along(scale, dim, groups, weight.size(0), weight.dim());
  const at::Tensor folded_bias = in_double(bias, scale) * scale + shift;
  return {(weight.to(at::kDouble) * factor).to(weight.scalar_type()), folded_bias.to(weight.scalar_type())};
}

std::tuple<at::Tensor, at::Tensor> fold_batch_norm_before(const at::Tensor& weight,
                                                          const std::optional<at::Tensor>& bias,
                                                          const std::optional<at::Tensor>& gamma,
                                                          const std::optional<at::Tensor>& beta,
                                                          const at::Tensor& mean, const at::Tensor& variance,
                                                          double eps, std::int64_t groups) {
  const auto [scale, shift] = batch_norm::scale_and_shift(gamma, beta, mean, variance, eps);
  const at::Tensor wide = weight.to(at::kDouble);
  const std::int64_t outputs = weight.size(0);
  const at::Tensor moved = (wide * along(shift, 1, groups, outputs, weight.dim())).flatten(1).sum(1);
  const at::Tensor folded_bias = in_double(bias, moved) + moved;
  return {(wide * along(scale, 1, groups, outputs, weight.dim())).to(weight.scalar_type()),
          folded_bias.to(weight.scalar_type())};
}

using namespace convolution;

bool is_linear(const Task& task, const Uses& uses) {
  const auto layer = linear_layer(task);
  return layer && layer->bias && uses.is_weight(layer->weight) && uses.is_weight(*layer->bias);
}

bool is_convolution(const Task& task, const Uses& uses) {
  if (!is_call_of(task, "aten::convolution")) return false;
  const TensorRef* weight = tensor_argument(task, kWeight);
  const TensorRef* bias = tensor_argument(task, kBias);
  return uses.is_weight(*weight) && (!bias || uses.is_weight(*bias)) && c10::isFloatingType(weight->dtype);
}

class Fold {
 public:
  explicit Fold(const Program& program) : program_(program), uses_(program), edit_(program) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      const TaskId norm{i};
      if (!batch_norm::is_in_inference(program_.task(norm), uses_)) continue;
      if (!into_producer(norm)) into_consumer(norm);
    }
    Rewritten result{.program = {}, .sites = std::move(sites_)};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  bool into_producer(TaskId id) {
    const Task& norm = program_.task(id);
    const auto maker = uses_.maker(*tensor_argument(norm, batch_norm::kInput));
    if (!maker || edit_.touches(*maker) || uses_.only_reader(*maker) != id) return false;
    const Task& layer = program_.task(*maker);
    std::vector<Operand> arguments = layer.arguments;
    if (is_convolution(layer, uses_)) {
      const bool transposed = value_argument(layer, kTransposed).toBool();
      const auto [weight, bias] =
          fold(*maker, norm, kWeight, kBias, transposed ? 1 : 0, value_argument(layer, kGroups).toInt());
      arguments[kWeight] = weight;
      arguments[kBias] = bias;
    } else if (is_linear(layer, uses_)) {
      const auto [weight, bias] = fold(*maker, norm, addmm::kWeight, addmm::kBias, 1, 1);
      arguments[addmm::kWeight] = weight;
      arguments[addmm::kBias] = bias;
    } else {
      return false;
    }
    edit_.replace(*maker, layer.op, std::move(arguments), {norm.results[0]});
    edit_.drop(id);
    sites_.push_back(task_name(program_, id) + " into " + task_name(program_, *maker));
    return true;
  }

  std::pair<TensorRef, TensorRef> fold(TaskId layer, const Task& norm, std::size_t weight, std::size_t bias,
                                       std::int64_t dim, std::int64_t groups) {
    static const auto op = find_operator("nimble::fold_batch_norm");
    return insert_fold(op, layer, norm, weight, bias, {c10::IValue(dim), c10::IValue(groups)},
                       tensor_argument(norm, batch_norm::kMean)->sizes);
  }

  std::pair<TensorRef, TensorRef> insert_fold(const c10::OperatorHandle& op, TaskId layer, const Task& norm,
                                              std::size_t weight, std::size_t bias, std::vector<Operand> more,
                                              at::IntArrayRef bias_sizes) {
    const Task& task = program_.task(layer);
    const TensorRef& old = *tensor_argument(task, weight);
    const c10::Device device = program_.buffer(old.buffer).device;
    TensorRef folded = edit_.new_tensor(old.sizes, old.dtype, device);
    folded.strides = old.strides;
    const TensorRef folded_bias = edit_.new_tensor(bias_sizes, old.dtype, device);
    std::vector<Operand> arguments = {old,
                                      task.arguments[bias],
                                      norm.arguments[batch_norm::kGamma],
                                      norm.arguments[batch_norm::kBeta],
                                      norm.arguments[batch_norm::kMean],
                                      norm.arguments[batch_norm::kVariance],
                                      norm.arguments[batch_norm::kEps]};
    for (Operand& operand : more) arguments.push_back(std::move(operand));
    edit_.insert(layer, op, std::move(arguments), {folded, folded_bias});
    return {folded, folded_bias};
  }

  void into_consumer(TaskId id) {
    static const auto op = find_operator("nimble::fold_batch_norm_before");
    const auto reader = uses_.only_reader(id);
    if (!reader || edit_.touches(*reader)) return;
    const Task& norm = program_.task(id);
    const Task& layer = program_.task(*reader);
    if (!is_convolution(layer, uses_) || value_argument(layer, kTransposed).toBool()) return;
    if (*tensor_argument(layer, kInput) != first_result(norm)) return;
    for (const std::int64_t padding : value_argument(layer, kPadding).toIntVector()) {
      if (padding != 0) return;
    }
    const auto [weight, bias] =
        insert_fold(op, *reader, norm, kWeight, kBias, {value_argument(layer, kGroups)},
                    {tensor_argument(layer, kWeight)->sizes[0]});
    std::vector<Operand> arguments = layer.arguments;
    arguments[kInput] = norm.arguments[batch_norm::kInput];
    arguments[kWeight] = weight;
    arguments[kBias] = bias;
    edit_.replace(*reader, layer.op, std::move(arguments), layer.results);
    edit_.drop(id);
    sites_.push_back(task_name(program_, id) + " into " + task_name(program_, *reader));
  }

  const Program& program_;
  Uses uses_;
  Edit edit_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext&) { return Fold(program).run(); }

}  // namespace

const Rewrite kFoldBatchNorm{.name = "fold_batch_norm",
                             .summary = "batch norms become part of the weights before or behind them",
                             .apply = apply};

}  // namespace nimble

TORCH_LIBRARY_FRAGMENT(nimble, library) {
  library.def(
      "fold_batch_norm(Tensor weight, Tensor? bias, Tensor? gamma, Tensor? beta, Tensor mean, Tensor "
      "variance, "
      "float eps, int dim, int groups) -> (Tensor, Tensor)",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(nimble::fold_batch_norm)));
  library.def(
      "fold_batch_norm_before(Tensor weight, Tensor? bias, Tensor? gamma, Tensor? beta, Tensor mean, "
      "Tensor variance, float eps, int groups) -> (Tensor, Tensor)",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(nimble::fold_batch_norm_before)));
}
