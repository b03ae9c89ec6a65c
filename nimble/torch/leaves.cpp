#include "nimble/torch/leaves.h"

#include <ATen/ATen.h>

namespace nimble {

bool Leaves::is_leaf(const at::Tensor& tensor) {
  return tensor.requires_grad() && !(tensor.is_view() && tensor._base().requires_grad()) && tensor.is_leaf();
}

Leaves::Leaves(std::span<const at::Tensor> outside) {
  for (const at::Tensor& tensor : outside) {
    if (tensor.defined() && tensor.has_storage() && is_leaf(tensor)) outside_.push_back(tensor);
  }
}

void Leaves::see(const at::Tensor& tensor) {
  if (is_leaf(tensor) && known_.insert(tensor.unsafeGetTensorImpl()).second)
    seen_.emplace_back(tensor.getIntrusivePtr());
}

std::vector<at::Tensor> Leaves::seen() const {
  std::vector<at::Tensor> leaves;
  for (const WeakTensor& weak : seen_) {
    if (auto strong = weak.lock()) leaves.emplace_back(std::move(strong));
  }
  std::erase_if(leaves, [](const at::Tensor& leaf) { return !is_leaf(leaf); });
  return leaves;
}

std::vector<LeafGradient> Leaves::gradients() const {
  std::vector<LeafGradient> gradients;
  for (const at::Tensor& leaf : seen()) gradients.push_back({leaf, leaf.grad()});
  // Some are known to autograd alone: no operator was given them.
  for (const at::Tensor& leaf : outside_) {
    if (!known_.contains(leaf.unsafeGetTensorImpl())) gradients.push_back({leaf, leaf.grad()});
  }
  return gradients;
}

}  // namespace nimble
