#include "nimble/torch/rewrites/onednn.h"

#include "nimble/torch/operator_facts.h"

namespace nimble {

bool onednn_computes(at::ScalarType type) {
  static const bool bfloat16 = find_operator("mkldnn::_is_mkldnn_bf16_supported").typed<bool()>().call();
  static const bool float16 = find_operator("mkldnn::_is_mkldnn_fp16_supported").typed<bool()>().call();
  switch (type) {
    case at::kFloat:
      return true;
    case at::kBFloat16:
      return bfloat16;
    case at::kHalf:
      return float16;
    default:
      return false;
  }
}

c10::List<std::optional<at::Scalar>> onednn_scalars(at::ArrayRef<double> numbers) {
  c10::List<std::optional<at::Scalar>> scalars;
  for (const double number : numbers) scalars.push_back(at::Scalar(number));
  return scalars;
}

}  // namespace nimble
