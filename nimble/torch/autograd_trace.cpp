#include "nimble/torch/autograd_trace.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <functional>

namespace nimble {

void AutogradTrace::runs(const std::shared_ptr<torch::autograd::Node>& node) {
  nodes_.insert_or_assign(node.get(), node);
}

// Some nodes call no operator (an addition hands its gradient on), so a node counts if all those behind it
// do.
bool AutogradTrace::ran_behind(const at::Tensor& output) const {
  std::unordered_map<const torch::autograd::Node*, bool> known;
  const std::function<bool(const torch::autograd::Node&)> ran = [&](const torch::autograd::Node& node) {
    if (const auto seen = known.find(&node); seen != known.end()) return seen->second;
    const auto found = nodes_.find(&node);
    bool result = found != nodes_.end() && found->second.lock().get() == &node;
    if (!result) {
      std::size_t behind = 0, ran_behind = 0;
      for (const auto& edge : node.next_edges()) {
        if (!edge.function || edge.function->next_edges().empty()) continue;  // a leaf
        ++behind;
        if (ran(*edge.function)) ++ran_behind;
      }
      result = behind > 0 && ran_behind == behind;
    }
    return known[&node] = result;
  };
  return output.grad_fn() && ran(*output.grad_fn());
}

// Autograd numbers its nodes as the forward pass makes them, each right before the operators that it stands
// for run. So the first call after a node was made tells whose node it is.
AutogradTrace::Origin AutogradTrace::origin_of_next_call() {
  const auto node = torch::autograd::get_current_node();
  Origin origin{.module = module_};
  if (!node) {
    module_of_node_.try_emplace(at::sequence_number::peek() - 1, module_);
    return origin;
  }
  origin.node = node->name();
  if (!module_.empty()) return origin;  // checkpointing runs a forward pass in there
  const auto found = module_of_node_.find(node->sequence_nr());
  if (found != module_of_node_.end()) origin.module = found->second;
  return origin;
}

}  // namespace nimble
