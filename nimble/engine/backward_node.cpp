#include "nimble/engine/backward_node.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "nimble/torch/record_error.h"

namespace nimble {
namespace {

// A tensor that the backward pass will look at, as it was after the forward pass.
struct Needed {
  at::Tensor tensor;
  std::uint32_t version;
};

class BackwardNode final : public torch::autograd::Node {
 public:
  BackwardNode(std::shared_ptr<Entry> entry, const Tensors& inputs)
      : entry_(std::move(entry)), inputs_(inputs) {
    for (const at::Tensor& tensor : entry_->outside_for_backward) need(tensor);
    for (const std::size_t i : entry_->inputs_for_backward) need(inputs[i]);
  }
  ~BackwardNode() override { release_variables(); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    if (!entry_) {
      throw Error(
          "Trying to backward through the graph a second time. The backward pass of a function compiled by "
          "nimble can be replayed once for each forward pass; specify retain_graph=True to do it again");
    }
    if (at::GradMode::is_enabled()) {
      throw RecordError(
          "[nimble::backward] create_graph=True: the backward pass of a compiled module cannot be "
          "differentiated again. Call the module itself (not the compiled one) where you need second "
          "derivatives, or compile the whole training step");
    }
    for (const Needed& needed : needed_) {
      if (needed.tensor._version() == needed.version) continue;
      throw Error(
          "one of the variables needed for gradient computation has been modified by an inplace operation: a "
          "tensor of shape " +
          c10::str(needed.tensor.sizes()) + " that the backward pass of a function compiled by nimble reads");
    }
    const Derivative& derivative = *entry_->derivative;
    Tensors arguments = inputs_;
    std::vector<bool> given;
    for (const at::Tensor& gradient : gradients) given.push_back(gradient.defined());
    given.resize(derivative.results.size());
    for (std::size_t n = 0; n < gradients.size(); ++n) {
      const bool expected = n < derivative.results.size();
      const bool passed_through = expected && !given[n] && is_passed_through(derivative.nesting, n, given);
      if (gradients[n].defined() != expected && !passed_through) {
        entry_->state = Entry::State::kEager;
        throw RecordError(
            "[nimble::backward] the loss uses other results of the compiled module than when it was "
            "recorded. Use the same ones at each call, or compile the whole training step. From now on it "
            "runs eagerly");
      }
      if (expected) {
        const std::size_t input = arguments.size();
        arguments.push_back(passed_through ? nothing_to_add(input) : as_recorded(gradients[n], input));
      }
    }
    const std::lock_guard replaying(entry_->replaying);
    return entry_->parts[1].replay(arguments);
  }

  void release_variables() override {
    // What goes with them may wait for Python's lock, whose owner may be waiting for ours.
    std::shared_ptr<Entry> entry;
    Tensors inputs;
    std::vector<Needed> needed;
    {
      const std::lock_guard lock(mutex_);
      entry.swap(entry_);
      inputs.swap(inputs_);
      needed.swap(needed_);
    }
    if (entry) entry->give_back();
  }
  std::string name() const override { return "NimbleBackward"; }

 private:
  void need(const at::Tensor& tensor) {
    if (!tensor.is_inference()) needed_.push_back({tensor, static_cast<std::uint32_t>(tensor._version())});
  }

  // Eager code takes gradients of any layout; the recording saw one.
  at::Tensor as_recorded(const at::Tensor& gradient, std::size_t input) const {
    const TensorRef& recorded = entry_->parts[1].program->inputs[input];
    if (gradient.strides() == at::IntArrayRef(recorded.strides) && !gradient.is_conj() && !gradient.is_neg())
      return gradient.detach();
    const at::NoGradGuard no_grad;
    at::Tensor copy = at::empty_strided(recorded.sizes, recorded.strides, gradient.options());
    return copy.copy_(gradient);
  }

  // For a result whose gradient comes from another one alone this time: what is added to that changes no bit
  // of it. Zero would, of a negative zero.
  at::Tensor nothing_to_add(std::size_t input) const {
    const Program& backward = *entry_->parts[1].program;
    const TensorRef& recorded = backward.inputs[input];
    const auto options = at::TensorOptions(recorded.dtype).device(backward.buffer(recorded.buffer).device);
    return at::empty_strided(recorded.sizes, recorded.strides, options).zero_().neg_();
  }

  // All under the lock of every node of autograd's, mutex_.
  std::shared_ptr<Entry> entry_;
  Tensors inputs_;
  std::vector<Needed> needed_;
};

}  // namespace

void join_graph(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Tensors& outputs) {
  const Derivative& derivative = *entry->derivative;
  const auto node = std::make_shared<BackwardNode>(entry, inputs);
  for (const std::size_t i : derivative.wrt_inputs) {
    node->add_next_edge(torch::autograd::impl::gradient_edge(inputs[i]));
  }
  for (const at::Tensor& leaf : derivative.wrt_leaves) {
    node->add_next_edge(torch::autograd::impl::gradient_edge(leaf));
  }
  // Used ones first: gradients arrive in this order.
  for (const auto* results : {&derivative.results, &derivative.not_used}) {
    for (const std::size_t i : *results) torch::autograd::set_history(outputs[i], node);
  }
}

}  // namespace nimble
