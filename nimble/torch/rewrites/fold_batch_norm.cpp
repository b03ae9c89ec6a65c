// A batch norm in inference multiplies and shifts each channel by numbers that do not depend on the input: so
// can the weights of the convolution or linear layer before it, or of the one behind it.
//
//   %1 = convolution(input0, w, b, …)      %3, %4 = nimble::fold_batch_norm(w, b, gamma, beta, mean, var, …)
//   %2 = native_batch_norm(%1, …)    ──▶   %2 = convolution(input0, %3, %4, …)
//
//   %1 = native_batch_norm(input0, …)      %3, %4 = nimble::fold_batch_norm_before(w, b, gamma, beta, …)
//   %2 = convolution(%1, w, b, …)    ──▶   %2 = convolution(input0, %3, %4, …)
//
// The second only without padding: what is padded is zero behind the batch norm, not before it. A layer
// without a bias gets one.

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/batch_norm.h"
#include "nimble/torch/rewrites/convolution.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/linear_layer.h"
#include "nimble/torch/rewrites/uses.h"
#include "nimble/torch/rewrites/weights_first.h"

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
  // What a layer multiplies with and adds. Which of them the weight counts where is for the task that folds.
  struct Parameters {
    TensorRef weight;
    Operand bias;
  };

  bool into_producer(TaskId id) {
    static const auto op = find_operator("nimble::fold_batch_norm");
    const Task& norm = program_.task(id);
    const auto maker = uses_.maker(*tensor_argument(norm, batch_norm::kInput));
    if (!maker || edit_.touches(*maker) || uses_.only_reader(*maker) != id) return false;
    const Task& layer = program_.task(*maker);
    const TensorRef& result = first_result(norm);
    const auto& channels = tensor_argument(norm, batch_norm::kMean)->sizes;
    const auto folded = [&](const Parameters& parameters, std::int64_t dim, std::int64_t groups) {
      return fold(op, *maker, norm, parameters, {c10::IValue(dim), c10::IValue(groups)}, channels);
    };
    if (is_convolution(layer, uses_)) {
      const bool transposed = value_argument(layer, kTransposed).toBool();
      const auto parameters = folded(of_convolution(layer), transposed ? 1 : 0, groups_of(layer));
      replace_convolution(*maker, layer.arguments[kInput], parameters, result);
    } else if (const auto linear = linear_of_weights(layer, uses_)) {
      replace_linear(*maker, linear->input, folded(of_linear(*linear), 1, 1), result);
    } else {
      return false;
    }
    report(id, *maker);
    return true;
  }

  void into_consumer(TaskId id) {
    static const auto op = find_operator("nimble::fold_batch_norm_before");
    const auto reader = uses_.only_reader(id);
    if (!reader || edit_.touches(*reader) || !uses_.can_move(id, *reader)) return;
    const Task& norm = program_.task(id);
    const Task& layer = program_.task(*reader);
    const TensorRef& input = *tensor_argument(norm, batch_norm::kInput);
    const auto folded = [&](const Parameters& parameters, std::int64_t outputs, std::int64_t groups) {
      return fold(op, *reader, norm, parameters, {c10::IValue(groups)}, {outputs});
    };
    if (is_convolution(layer, uses_) && takes_only_what_is_there(layer) &&
        *tensor_argument(layer, kInput) == first_result(norm)) {
      const Parameters parameters = of_convolution(layer);
      const std::int64_t outputs = parameters.weight.sizes[0];
      replace_convolution(*reader, input, folded(parameters, outputs, groups_of(layer)), first_result(layer));
    } else if (const auto linear = linear_of_weights(layer, uses_);
               linear && linear->input == first_result(norm)) {
      Parameters by_output = of_linear(*linear);  // where a convolution has its outputs
      by_output.weight = transposed(by_output.weight);
      Parameters parameters = folded(by_output, linear->columns(), 1);
      parameters.weight = transposed(parameters.weight);
      replace_linear(*reader, input, parameters, linear->result);
    } else {
      return;
    }
    report(id, *reader);
  }

  // No zeros around an image, nor between its pixels.
  static bool takes_only_what_is_there(const Task& convolution) {
    const auto padding = value_argument(convolution, kPadding).toIntVector();
    return !value_argument(convolution, kTransposed).toBool() &&
           std::ranges::all_of(padding, [](std::int64_t pixels) { return pixels == 0; });
  }

  static Parameters of_convolution(const Task& task) {
    return {*tensor_argument(task, kWeight), task.arguments[kBias]};
  }
  static std::int64_t groups_of(const Task& convolution) {
    return value_argument(convolution, kGroups).toInt();
  }
  static Parameters of_linear(const LinearLayer& layer) { return {layer.weight, optional_ref(layer.bias)}; }

  // Inserts the task that folds the norm into the parameters of `layer`.
  Parameters fold(const c10::OperatorHandle& op, TaskId layer, const Task& norm, const Parameters& old,
                  std::vector<Operand> more, at::IntArrayRef bias_sizes) {
    const c10::Device device = program_.buffer(old.weight.buffer).device;
    TensorRef weight = edit_.new_tensor(old.weight.sizes, old.weight.dtype, device);
    if (is_dense(old.weight)) weight.strides = old.weight.strides;
    const TensorRef bias = edit_.new_tensor(bias_sizes, old.weight.dtype, device);
    std::vector<Operand> arguments = {old.weight, old.bias};
    for (const std::size_t n : {batch_norm::kGamma, batch_norm::kBeta, batch_norm::kMean,
                                batch_norm::kVariance, batch_norm::kEps}) {
      arguments.push_back(norm.arguments[n]);
    }
    for (Operand& operand : more) arguments.push_back(std::move(operand));
    edit_.insert(layer, op, std::move(arguments), {weight, bias});
    return {weight, bias};
  }

  void replace_convolution(TaskId id, Operand input, const Parameters& parameters, const TensorRef& result) {
    std::vector<Operand> arguments = program_.task(id).arguments;
    arguments[kInput] = std::move(input);
    arguments[kWeight] = parameters.weight;
    arguments[kBias] = parameters.bias;
    edit_.replace(id, program_.task(id).op, std::move(arguments), {result});
  }

  void replace_linear(TaskId id, const TensorRef& input, const Parameters& parameters,
                      const TensorRef& result) {
    static const auto op = find_operator("aten::addmm");
    const c10::IValue one(at::Scalar(1));
    edit_.replace(id, op, {parameters.bias, input, parameters.weight, one, one}, {result});
  }

  void report(TaskId norm, TaskId layer) {
    edit_.drop(norm);
    sites_.push_back(task_name(program_, norm) + " into " + task_name(program_, layer));
  }

  const Program& program_;
  Uses uses_;
  Edit edit_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext&) {
  const Program ordered = with_weights_first(std::move(program));
  return Fold(ordered).run();
}

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
