#include "nimble/torch/recorded_values.h"

#include <algorithm>

namespace nimble {

std::vector<std::size_t> twins_among(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> seen;
  std::vector<std::size_t> twins;
  for (const auto& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (value.isTensor() && is_number(tensor)) return;
      const auto first =
          std::find_if(seen.begin(), seen.end(), [&](const at::Tensor& t) { return t.is_same(tensor); });
      twins.push_back(first - seen.begin());
      seen.push_back(tensor);
    });
  }
  return twins;
}

std::optional<Refusal> unsupported(const std::string& what, const at::Tensor& tensor) {
  const auto refusal = [&](const std::string& kind) {
    return Refusal{what, "it has to do with a " + kind,
                   "Nimble replays dense tensors only; leave this part outside the compiled function", ""};
  };
  if (!tensor.defined()) return refusal("undefined tensor");
  if (tensor.key_set().has(c10::DispatchKey::Python))
    return refusal("tensor of a class that computes by rules of its own (__torch_dispatch__)");
  if (tensor.is_nested()) return refusal("nested tensor");
  if (tensor.layout() != at::kStrided) return refusal(c10::str(tensor.layout()) + " tensor");
  if (tensor.is_quantized()) return refusal("quantized tensor");
  if (tensor._is_zerotensor()) return refusal("symbolic zero tensor");
  if (!tensor.has_storage() || tensor.is_meta()) return refusal("storage-less tensor");
  return std::nullopt;
}

}  // namespace nimble
