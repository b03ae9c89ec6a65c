#include "nimble/torch/rewrites/batch_norm.h"

#include <ATen/ATen.h>

namespace nimble::batch_norm {

bool is_in_inference(const Task& task, const Uses& uses) {
  if (!is_call_of(task, "aten::native_batch_norm") && !is_call_of(task, "aten::cudnn_batch_norm"))
    return false;
  if (value_argument(task, kTraining).toBool()) return false;
  for (const std::size_t i : {kMean, kVariance}) {
    const TensorRef* ref = tensor_argument(task, i);
    if (!ref || !uses.is_weight(*ref)) return false;
  }
  for (const std::size_t i : {kGamma, kBeta}) {
    const TensorRef* ref = tensor_argument(task, i);
    if (ref && !uses.is_weight(*ref)) return false;
  }
  // Its statistics come back as well; nobody may look at them.
  for (std::size_t r = 1; r < task.results.size(); ++r) {
    const auto* ref = std::get_if<TensorRef>(&task.results[r]);
    if (ref && (!uses.readers(ref->buffer).empty() || !uses.is_private(ref->buffer))) return false;
  }
  return true;
}

ScaleAndShift scale_and_shift(const std::optional<at::Tensor>& gamma, const std::optional<at::Tensor>& beta,
                              const at::Tensor& mean, const at::Tensor& variance, double eps) {
  at::Tensor scale = (variance.to(at::kDouble) + eps).rsqrt();
  if (gamma && gamma->defined()) scale = scale * gamma->to(at::kDouble);
  at::Tensor shift = -mean.to(at::kDouble) * scale;
  if (beta && beta->defined()) shift = shift + beta->to(at::kDouble);
  return {scale, shift};
}

}  // namespace nimble::batch_norm
