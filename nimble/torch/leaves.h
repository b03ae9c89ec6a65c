#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <unordered_set>
#include <vector>

namespace nimble {

// A leaf tensor and its gradient, if it has one.
struct LeafGradient {
  at::Tensor leaf, gradient;
};

// Tensors for which autograd keeps a gradient, as a recording comes to know them. Several may share a
// storage, and with tensors that autograd knows nothing of (cuDNN's flat weights). Some are the function's
// own (checkpointing detaches what it is given) and must be let go, so that they are held weakly.
class Leaves {
 public:
  // Those among `outside` are known to autograd, whether any operator is given them or not.
  explicit Leaves(std::span<const at::Tensor> outside);

  // An operator was given this tensor, whose memory lives outside.
  void see(const at::Tensor& tensor);

  // Those that operators were given and that are still there.
  std::vector<at::Tensor> seen() const;

  // Of all of them, as they are now.
  std::vector<LeafGradient> gradients() const;

  // Whether autograd keeps a gradient for it. A view that was made without grad looks like a leaf and is
  // none.
  static bool is_leaf(const at::Tensor& tensor);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::vector<WeakTensor> seen_;
  std::unordered_set<const c10::TensorImpl*> known_;  // among the seen
  std::vector<at::Tensor> outside_;
};

}  // namespace nimble
