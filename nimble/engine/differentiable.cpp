#include "nimble/engine/differentiable.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace nimble {

namespace {

// What arrived at a result within its own graph. It is held on to, so that autograd adds nothing to it in
// place: it is all that arrives if that is the same tensor. Of several it is none.
class FromInside {
 public:
  void add(const at::Tensor& gradient) {
    const std::lock_guard lock(mutex_);
    last_ = gradient;
  }
  bool is_all(const at::Tensor& arrived) {
    const std::lock_guard lock(mutex_);
    return std::exchange(last_, at::Tensor()).is_same(arrived);
  }

 private:
  std::mutex mutex_;
  at::Tensor last_;
};

class SeesFromInside final : public torch::autograd::FunctionPostHook {
 public:
  SeesFromInside(std::shared_ptr<FromInside> from_inside, std::size_t edge)
      : from_inside_(std::move(from_inside)), edge_(edge) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients,
                                            const torch::autograd::variable_list&) override {
    if (gradients[edge_].defined()) from_inside_->add(gradients[edge_]);
    return gradients;
  }

 private:
  std::shared_ptr<FromInside> from_inside_;
  std::size_t edge_;
};

Tensors those_at(const std::vector<std::size_t>& places, const Tensors& outputs) {
  Tensors chosen;
  for (const std::size_t i : places) chosen.push_back(outputs[i]);
  return chosen;
}

bool any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

}  // namespace

void UsedResults::observe(const std::shared_ptr<UsedResults>& used, const Tensors& inputs,
                          const Tensors& outputs) {
  const Tensors results = those_at(differentiable_results(inputs, outputs), outputs);
  if (results.size() < 2) return;  // who goes backward goes back from the only one
  const std::size_t run = used->begin({std::vector<bool>(results.size()), nesting_of(results)});
  std::vector<std::shared_ptr<FromInside>> from_inside;
  for (std::size_t n = 0; n < results.size(); ++n) from_inside.push_back(std::make_shared<FromInside>());
  for_each_edge_between(results, [&](torch::autograd::Node& from, std::size_t edge, std::size_t n) {
    from.add_post_hook(std::make_unique<SeesFromInside>(from_inside[n], edge));
  });
  for (std::size_t n = 0; n < results.size(); ++n) {
    results[n].register_hook([used, run, n, inside = from_inside[n]](const at::Tensor& gradient) {
      if (gradient.defined() && !inside->is_all(gradient)) used->saw(run, n);
    });
  }
}

std::size_t UsedResults::begin(Run run) {
  const std::lock_guard lock(mutex_);
  runs_.push_back(std::move(run));
  return runs_.size() - 1;
}

// Of whichever run it is that somebody goes back from: it need not be the last.
void UsedResults::saw(std::size_t run, std::size_t result) {
  const std::lock_guard lock(mutex_);
  runs_[run].used[result] = true;
}

std::optional<std::vector<bool>> UsedResults::seen() const {
  const std::lock_guard lock(mutex_);
  std::optional<std::vector<bool>> seen;
  for (const Run& run : runs_) {
    if (!any(run.used)) continue;
    if (!seen || seen->size() != run.used.size()) seen.emplace(run.used.size());
    for (std::size_t n = 0; n < run.used.size(); ++n) (*seen)[n] = (*seen)[n] || run.used[n];
  }
  return seen;
}

// A run that went back from fewer results is no matter where their gradients are nothing but additions.
bool UsedResults::vary() const {
  const auto all = seen();
  const std::lock_guard lock(mutex_);
  return std::any_of(runs_.begin(), runs_.end(), [&](const Run& run) {
    if (!any(run.used)) return false;
    if (run.used.size() != all->size()) return true;
    for (std::size_t n = 0; n < all->size(); ++n) {
      if ((*all)[n] && !run.used[n] && !is_passed_through(run.nesting, n, run.used)) return true;
    }
    return false;
  });
}

std::vector<std::size_t> differentiable_results(const Tensors& inputs, const Tensors& outputs) {
  std::vector<std::size_t> results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto is_this = [&](const at::Tensor& other) { return other.is_same(outputs[i]); };
    const bool passed_through = std::any_of(inputs.begin(), inputs.end(), is_this);
    const bool again =
        std::any_of(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i), is_this);
    if (outputs[i].defined() && outputs[i].grad_fn() && !passed_through && !again) results.push_back(i);
  }
  return results;
}

bool Derivative::lacks_a_result_of(const UsedResults& used) const {
  const auto seen = used.seen();
  if (!seen || seen->size() != results.size() + not_used.size()) return false;
  std::vector<std::size_t> all = results;
  all.insert(all.end(), not_used.begin(), not_used.end());
  std::ranges::sort(all);
  return std::ranges::any_of(not_used, [&](std::size_t result) {
    return (*seen)[std::ranges::lower_bound(all, result) - all.begin()];
  });
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
  const Tensors from = those_at(results, outputs);
  Tensors to;
  for (const std::size_t i : wrt_inputs) to.push_back(inputs[i]);
  to.insert(to.end(), wrt_leaves.begin(), wrt_leaves.end());
  return torch::autograd::grad(from, to, gradients, /*retain_graph=*/true, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

bool computed_from_one_another(const Tensors& inputs, const ProgramBuilder& builder) {
  Tensors tensors = builder.leaves();
  std::ranges::copy_if(inputs, std::back_inserter(tensors), [&](const at::Tensor& input) {
    return input.requires_grad() &&
           std::ranges::none_of(tensors, [&](const at::Tensor& leaf) { return leaf.is_same(input); });
  });
  return std::ranges::any_of(nesting_of(tensors), any);
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
  derivative.nesting = nesting_of(those_at(derivative.results, outputs));
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
