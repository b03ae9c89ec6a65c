#include "nimble/torch/rewrites/linear_layer.h"

#include "nimble/torch/tf32.h"

namespace nimble {

std::optional<LinearLayer> linear_layer(const Task& task) {
  const bool adds = is_call_of(task, "aten::addmm");
  if (!adds && !is_call_of(task, "aten::mm")) return {};
  // An overload rounds to a type of its own. Complex factors cannot be compared with one.
  if (!task.op.operator_name().overload_name.empty() || !c10::isFloatingType(first_result(task).dtype)) {
    return {};
  }
  if (!adds) return LinearLayer{*tensor_argument(task, 0), *tensor_argument(task, 1), first_result(task)};
  LinearLayer layer{.input = *tensor_argument(task, addmm::kInput),
                    .weight = *tensor_argument(task, addmm::kWeight),
                    .result = first_result(task),
                    .bias = *tensor_argument(task, addmm::kBias)};
  const bool is_row = layer.bias->sizes.size() == 1 && layer.bias->sizes[0] == layer.columns();
  const bool is_scaled = value_argument(task, addmm::kBeta).toScalar().toDouble() != 1 ||
                         value_argument(task, addmm::kAlpha).toScalar().toDouble() != 1;
  return is_row && !is_scaled ? std::optional(std::move(layer)) : std::nullopt;
}

std::optional<LinearLayer> linear_of_weights(const Task& task, const Uses& uses) {
  auto layer = linear_layer(task);
  const bool of_weights =
      layer && uses.is_weight(layer->weight) && (!layer->bias || uses.is_weight(*layer->bias));
  return of_weights ? std::move(layer) : std::nullopt;
}

bool may_round_to_tf32(const LinearLayer& layer) {
  return layer.result.dtype == at::kFloat && allows_tf32(at::Float32Op::MATMUL);
}

}  // namespace nimble
