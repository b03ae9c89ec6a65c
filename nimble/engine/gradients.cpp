#include "nimble/engine/gradients.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nimble {
namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl();
}

void set_gradient(const at::Tensor& leaf, const at::Tensor& gradient) {
  if (!same(leaf.grad(), gradient)) leaf.mutable_grad() = gradient;
}

}  // namespace

Gradients::Gradients(const Tensors& leaves) {
  for (const at::Tensor& leaf : leaves) {
    if (!leaf.requires_grad() || !leaf.is_leaf()) continue;
    const bool known = std::any_of(places_.begin(), places_.end(),
                                   [&](const Place& place) { return place.leaf.is_same(leaf); });
    if (!known) places_.push_back({leaf, leaf.grad(), {}});
  }
}

bool Gradients::recorded(const ProgramBuilder& builder) {
  bool all_known = true;
  for (const at::Tensor& leaf : builder.leaves()) {
    const bool known = std::any_of(places_.begin(), places_.end(),
                                   [&](const Place& place) { return place.leaf.is_same(leaf); });
    if (known) continue;
    places_.push_back({leaf, {}, {}});
    if (builder.went_backward()) all_known = false;
  }
  for (Place& place : places_) {
    place.after = place.leaf.grad();
    // A gradient that was there and that no operator looked at was dropped by the run itself.
    place.before_matters =
        place.before.defined() ? builder.knows(place.before.storage()) : builder.went_backward();
  }
  std::erase_if(places_,
                [](const Place& place) { return !place.before_matters && same(place.before, place.after); });
  return all_known;
}

Tensors Gradients::leaves() const {
  Tensors leaves;
  for (const Place& place : places_) leaves.push_back(place.leaf);
  return leaves;
}

Tensors Gradients::left() const {
  Tensors left;
  for (const Place& place : places_) {
    if (place.after.defined()) left.push_back(place.after);
  }
  return left;
}

void Gradients::for_each(
    const std::function<void(const at::Tensor& leaf, const at::Tensor& left)>& visit) const {
  for (const Place& place : places_) visit(place.leaf, place.after);
}

bool Gradients::hold() const {
  return std::all_of(places_.begin(), places_.end(), [](const Place& place) {
    return !place.before_matters || same(place.leaf.grad(), place.before);
  });
}

void Gradients::put_back() const {
  for (const Place& place : places_) set_gradient(place.leaf, place.after);
}

void Gradients::undo() const {
  for (const Place& place : places_) set_gradient(place.leaf, place.before);
}

void set_gradients(const std::vector<LeafGradient>& gradients) {
  for (const auto& [leaf, gradient] : gradients) set_gradient(leaf, gradient);
}

}  // namespace nimble
