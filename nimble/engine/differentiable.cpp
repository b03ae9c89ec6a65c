#include "nimble/engine/differentiable.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

namespace nimble {

void UsedResults::observe(const std::shared_ptr<UsedResults>& used, const Tensors& inputs,
                          const Tensors& outputs) {
  const auto results = differentiable_results(inputs, outputs);
  if (results.size() < 2) return;  // who goes backward goes back from the only one
  const std::size_t run = used->begin(results.size());
  for (std::size_t n = 0; n < results.size(); ++n) {
    outputs[results[n]].register_hook([used, run, n](const at::Tensor& gradient) {
      if (gradient.defined()) used->saw(run, n);
    });
  }
}

std::size_t UsedResults::begin(std::size_t results) {
  const std::lock_guard lock(mutex_);
  runs_.emplace_back(results);
  return runs_.size() - 1;
}

// Of whichever run it is that somebody goes back from: it need not be the last.
void UsedResults::saw(std::size_t run, std::size_t result) {
  const std::lock_guard lock(mutex_);
  runs_[run][result] = true;
}

std::optional<std::vector<bool>> UsedResults::seen() const {
  const std::lock_guard lock(mutex_);
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run) {
    if (std::find(run->begin(), run->end(), true) != run->end()) return *run;
  }
  return std::nullopt;
}

bool UsedResults::vary() const {
  const auto last = seen();
  const std::lock_guard lock(mutex_);
  return std::any_of(runs_.begin(), runs_.end(), [&](const std::vector<bool>& run) {
    return run != last && std::find(run.begin(), run.end(), true) != run.end();
  });
}

std::vector<std::size_t> differentiable_results(const Tensors& inputs, const Tensors& outputs) {
  std::vector<std::size_t> results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto is_this = [&](const at::Tensor& other) { return other.is_same(outputs[i]); };
    const bool passed_through = std::any_of(inputs.begin(), inputs.end(), is_this);
    const bool again =
        std::any_of(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i), is_this);
    if (outputs[i].grad_fn() && !passed_through && !again) results.push_back(i);
  }
  return results;
}

Tensors Derivative::some_gradients(const Tensors& outputs) const {
  const at::NoGradGuard no_grad;
  Tensors gradients;
  for (const std::size_t i : results) {
    // No random numbers: those are the user's.
    const at::Tensor& output = outputs[i];
    const at::Tensor numbers = at::arange(output.numel(), output.options().dtype(at::kFloat)).sin();
    gradients.push_back(at::empty_like(output).copy_(numbers.view(output.sizes())));
  }
  return gradients;
}

Tensors Derivative::eagerly(const Tensors& inputs, const Tensors& outputs, const Tensors& gradients) const {
  Tensors from, to;
  for (const std::size_t i : results) from.push_back(outputs[i]);
  for (const std::size_t i : wrt_inputs) to.push_back(inputs[i]);
  to.insert(to.end(), wrt_leaves.begin(), wrt_leaves.end());
  return torch::autograd::grad(from, to, gradients, /*retain_graph=*/true, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

Derivative record_derivative(const Tensors& inputs, const Tensors& outputs, ProgramBuilder& builder,
                             Host& host, const UsedResults& used, Tensors& made) {
  Derivative derivative;
  const auto candidates = differentiable_results(inputs, outputs);
  auto seen = used.seen().value_or(std::vector<bool>());
  if (seen.size() != candidates.size())
    seen.assign(candidates.size(), true);  // of another function, as it were
  for (std::size_t n = 0; n < candidates.size(); ++n) {
    (seen[n] ? derivative.results : derivative.not_used).push_back(candidates[n]);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad()) derivative.wrt_inputs.push_back(i);
  }
  for (const at::Tensor& leaf : builder.leaves()) {
    const bool is_input = std::any_of(inputs.begin(), inputs.end(),
                                      [&](const at::Tensor& input) { return input.is_same(leaf); });
    if (!is_input) derivative.wrt_leaves.push_back(leaf);
  }
  const Tensors gradients = derivative.some_gradients(outputs);
  builder.begin_backward(gradients);
  Tensors all;
  host.record_backward(builder, [&] { all = derivative.eagerly(inputs, outputs, gradients); });

  // Only what gets a gradient is worth asking for.
  Derivative useful = derivative;
  useful.wrt_inputs.clear();
  useful.wrt_leaves.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) continue;
    made.push_back(all[i]);
    if (i < derivative.wrt_inputs.size()) {
      useful.wrt_inputs.push_back(derivative.wrt_inputs[i]);
    } else {
      useful.wrt_leaves.push_back(derivative.wrt_leaves[i - derivative.wrt_inputs.size()]);
    }
  }
  return useful;
}

}  // namespace nimble
