#include "nimble/engine/gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>

namespace nimble {
namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl();
}

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// Besides us, who hold `ours` references. Its object in Python, which stays once somebody has looked at it,
// is nobody; whoever holds that is.
bool somebody_holds(const at::Tensor& tensor, std::size_t ours) {
  return !torch::autograd::impl::is_tensor_stealable(tensor, ours);
}

void set_gradient(const at::Tensor& leaf, const at::Tensor& gradient) {
  if (!same(leaf.grad(), gradient)) leaf.mutable_grad() = gradient;
}

}  // namespace

Gradients::Gradients(const Tensors& leaves) {
  std::unordered_map<const c10::TensorImpl*, bool> known;
  for (const at::Tensor& leaf : leaves) {
    if (!leaf.requires_grad() || !leaf.is_leaf()) continue;
    if (known.try_emplace(leaf.unsafeGetTensorImpl(), true).second)
      places_.push_back({leaf, leaf.grad(), {}});
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
  // What the run had not touched by a pause is whatever it is.
  pauses_ = builder.gradients_at_pauses();
  for (auto& pause : pauses_) {
    std::erase_if(pause, [&](const LeafGradient& at_pause) {
      return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
        return place.leaf.is_same(at_pause.leaf) && same(place.before, at_pause.gradient);
      });
    });
  }
  std::erase_if(places_,
                [](const Place& place) { return !place.before_matters && same(place.before, place.after); });
  // Nobody else may hold it any more, and gradients take as much memory as the parameters.
  for (Place& place : places_) {
    if (!place.before_matters) place.before.reset();
    place.memory_before = memory_of(place.before);
    if (memory_of(place.after)) place.recorded_after = place.after.detach();
  }
  return all_known;
}

Tensors Gradients::leaves() const {
  Tensors leaves;
  for (const Place& place : places_) leaves.push_back(place.leaf);
  return leaves;
}

Tensors Gradients::made() const {
  Tensors made;
  const Visit add = [&](const at::Tensor&, const at::Tensor& gradient) {
    if (gradient.defined()) made.push_back(gradient);
  };
  for (std::size_t i = 0; i < pauses_.size(); ++i) for_each_at_pause(i, add);
  for_each_at_end(add);
  return made;
}

void Gradients::for_each_at_pause(std::size_t pause, const Visit& visit) const {
  for (const auto& [leaf, gradient] : pauses_[pause]) visit(leaf, gradient);
}

void Gradients::for_each_at_end(const Visit& visit) const {
  for (const Place& place : places_) visit(place.leaf, place.after);
}

bool Gradients::Place::holds() const {
  if (!before_matters) return true;
  return memory_of(before) == memory_before && (same(leaf.grad(), before) || left_by_last_replay());
}

bool Gradients::Place::after_was_moved() const {
  return recorded_after.defined() && !same(after, before) && memory_of(after) != memory_of(recorded_after);
}

// A gradient that the last replay left, and that the next one reads before it makes another, is exchanged for
// the recorded one.
bool Gradients::Place::left_by_last_replay() const {
  return before_matters && !same(before, after) && same(leaf.grad(), after) && same_form(before, after);
}

bool Gradients::hold() const {
  return std::all_of(places_.begin(), places_.end(), [](const Place& place) { return place.holds(); });
}

void Gradients::before_replay() {
  take_over_values();
  take_back_moved();
  spare_what_others_hold();
}

void Gradients::replace_after(Place& place, const at::Tensor& successor) {
  for (auto& pause : pauses_) {
    for (auto& at_pause : pause) {
      if (same(at_pause.gradient, place.after)) at_pause.gradient = successor;
    }
  }
  place.after = successor;
}

void Gradients::take_back_moved() {
  for (Place& place : places_) {
    if (place.after_was_moved()) replace_after(place, place.recorded_after.detach());
  }
}

void Gradients::take_over_values() {
  const at::NoGradGuard no_grad;
  for (const Place& place : places_) {
    if (!place.left_by_last_replay()) continue;
    place.before.copy_(place.leaf.grad());
    place.leaf.mutable_grad() = place.before;
  }
}

void Gradients::follow_eager() const {
  const at::NoGradGuard no_grad;
  for (const Place& place : places_) {
    const at::Tensor now = place.leaf.grad();
    const bool only_ours = !somebody_holds(now, 2);  // the leaf's, and the one above
    if (same(now, place.after) || !same_form(now, place.after) || !only_ours) continue;
    place.after.copy_(now);
    place.leaf.mutable_grad() = place.after;
  }
}

void Gradients::follow_host_at_pause(std::size_t pause) const {
  const at::NoGradGuard no_grad;
  for_each_at_pause(pause, [](const at::Tensor& leaf, const at::Tensor& recorded) {
    const at::Tensor& now = leaf.grad();
    if (recorded.defined() && now.defined() && !same(recorded, now)) recorded.copy_(now);
  });
}

// The tensor stays with whoever holds it and gets a copy; a new one takes its place over the recorded memory.
void Gradients::spare_what_others_hold() {
  for (Place& place : places_) {
    if (!place.after.defined() || same(place.after, place.before)) continue;
    std::size_t ours = same(place.leaf.grad(), place.after) ? 2 : 1;
    for (const auto& pause : pauses_) {
      ours += std::count_if(pause.begin(), pause.end(),
                            [&](const auto& at_pause) { return same(at_pause.gradient, place.after); });
    }
    if (!somebody_holds(place.after, ours)) continue;
    const at::NoGradGuard no_grad;
    const at::Tensor kept = place.after;
    replace_after(place, kept.detach());
    kept.set_data(kept.clone());
  }
}

void Gradients::put_back_at_pause(std::size_t pause) const { for_each_at_pause(pause, set_gradient); }
void Gradients::put_back() const { for_each_at_end(set_gradient); }

void Gradients::undo() const {
  for (const Place& place : places_) set_gradient(place.leaf, place.before);
}

}  // namespace nimble
