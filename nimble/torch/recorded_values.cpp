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
  const auto refusal = [&](std::string kind) {
    return Refusal{what, "it has to do with a " + std::move(kind) + " tensor",
                   "Nimble replays dense tensors only; leave this part outside the compiled function", ""};
  };
  if (tensor.is_nested()) return refusal("nested");
  if (tensor.layout() != at::kStrided) return refusal(c10::str(tensor.layout()));
  if (tensor.is_quantized()) return refusal("quantized");
  if (tensor._is_zerotensor()) return refusal("symbolic zero");
  if (!tensor.has_storage() || tensor.is_meta()) return refusal("storage-less");
  return std::nullopt;
}

}  // namespace nimble
