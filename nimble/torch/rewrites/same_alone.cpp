#include "nimble/torch/rewrites/same_alone.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "nimble/torch/bind_operand.h"
#include "nimble/torch/outside_state.h"

namespace nimble {
namespace {

// Numbers up to one, small ones among them, without a draw from anybody's generator.
at::Tensor made_up(const TensorRef& ref, c10::Device device, bool positive) {
  const at::Tensor tensor =
      at::empty_strided(ref.sizes, ref.strides, at::TensorOptions(device).dtype(ref.dtype));
  if (!c10::isFloatingType(ref.dtype)) return tensor.zero_();
  const auto first = 1 + static_cast<double>(ref.buffer.index() * 13 + static_cast<std::size_t>(ref.offset));
  const at::Tensor numbers = at::arange(ref.numel(), tensor.options().dtype(at::kDouble))
                                 .mul_(0.7390851332151607)
                                 .add_(first)
                                 .sin_()
                                 .pow_(3)
                                 .view(at::IntArrayRef(ref.sizes));
  return tensor.copy_(positive ? numbers.abs_() : numbers);
}

// The tensors that tasks look at, by what refs say.
class Alone {
 public:
  Alone(std::span<const Buffer> buffers, bool positive) : buffers_(buffers), positive_(positive) {}

  void run(const Task& task) {
    torch::jit::Stack stack;
    for (const Operand& operand : task.arguments) {
      stack.push_back(bind_operand(operand, [&](const TensorRef& ref) { return tensor(ref); }));
    }
    ThreadStateGuard state;
    state.enter(task.state);
    task.op.callBoxed(&stack);
    for (std::size_t r = 0; r < task.results.size(); ++r) {
      if (const auto* ref = std::get_if<TensorRef>(&task.results[r])) {
        tensors_.insert_or_assign(key(*ref), stack[r].toTensor());
      } else if (const auto* list = std::get_if<TensorRefList>(&task.results[r])) {
        for (std::size_t e = 0; e < list->refs.size(); ++e) {
          if (list->refs[e])
            tensors_.insert_or_assign(key(*list->refs[e]), stack[r].toListRef()[e].toTensor());
        }
      }
    }
  }

  const at::Tensor& tensor(const TensorRef& ref) {
    const auto [known, first] = tensors_.try_emplace(key(ref));
    if (first) known->second = made_up(ref, buffers_[ref.buffer.index()].device, positive_);
    return known->second;
  }

 private:
  static std::string key(const TensorRef& ref) {
    return std::to_string(ref.buffer.index()) + '+' + std::to_string(ref.offset) + ' ' + to_string(ref);
  }

  std::span<const Buffer> buffers_;
  bool positive_;
  std::unordered_map<std::string, at::Tensor> tensors_;
};

bool same_numbers(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_floating_point()) return same_bits(a, b);
  const at::Tensor none_a = a.isnan(), none_b = b.isnan();
  return a.strides() == b.strides() && at::equal(none_a, none_b) &&
         same_bits(a.masked_fill(none_a, 0), b.masked_fill(none_b, 0));
}

}  // namespace

bool same_alone(std::span<const Task> several, const Task& one, std::span<const Buffer> buffers) {
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  try {
    // A root has no use for negative numbers, and a difference has for both.
    for (const bool positive : {false, true}) {
      Alone before(buffers, positive), after(buffers, positive);
      for (const Task& task : several) before.run(task);
      after.run(one);
      const bool same = std::ranges::all_of(one.writes, [&](const TensorRef& ref) {
        return same_numbers(before.tensor(ref), after.tensor(ref));
      });
      if (!same) return false;
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace nimble
