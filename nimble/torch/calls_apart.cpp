#include "nimble/torch/calls_apart.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace nimble {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using Calls = std::vector<torch::jit::Stack>;

// Both have the mask last and return gradients for input, weight and bias.
constexpr std::array<std::string_view, 2> kWithMask{"aten::convolution_backward",
                                                    "aten::native_layer_norm_backward"};

bool has_mask(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  return overload.empty() && std::find(kWithMask.begin(), kWithMask.end(), name) != kWithMask.end();
}

Calls by_mask(Arguments arguments) {
  const auto wanted = arguments.back().toBoolList();
  if (!arguments.front().toTensor().is_cuda() || !wanted[0] || !wanted[1]) return {};
  Calls calls;
  // The gradient for the bias is a sum, quickly done, and stays with the weight's.
  for (const c10::List<bool>& mask : {c10::List<bool>{true, false, false}, {false, true, wanted[2]}}) {
    calls.emplace_back(arguments.begin(), arguments.end());
    calls.back().back() = mask;
  }
  return calls;
}

// What an operator on lists does in place, or would if it were called by its other name: it goes from element
// to element, so that no tensor has to do with another.
bool goes_over_lists(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  if (!name.starts_with("aten::_foreach_") && !name.starts_with("aten::_fused_")) return false;
  return name.ends_with('_') || c10::Dispatcher::singleton().findSchema({name + "_", overload}).has_value();
}

// Every list has this many elements, or none, and nothing else has to do with single elements: a tensor of
// several values (_foreach_addcdiv_ takes one) would be a list as well.
bool have_length(Arguments arguments, std::size_t length) {
  return std::all_of(arguments.begin(), arguments.end(), [&](const c10::IValue& argument) {
    if (argument.isTensor()) return !argument.toTensor().defined() || argument.toTensor().numel() == 1;
    return !argument.isList() || argument.toListRef().empty() || argument.toListRef().size() == length;
  });
}

// PyTorch has one kernel for all tensors of lists that are alike, and else goes from tensor to tensor: a
// stretch of the former is treated like the whole.
bool are_alike(Arguments arguments) {
  const at::Tensor* first = nullptr;
  for (const auto& argument : arguments) {
    if (!argument.isTensorList()) continue;
    const auto tensors = argument.toListRef();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i].toTensor();
      const at::Tensor& model = arguments.front().toListRef()[i].toTensor();
      if (!first) first = &tensor;
      const bool is_count = tensor.dim() == 0;  // of steps, in an optimizer's state
      if (!tensor.is_cuda() || tensor.device() != first->device() || !tensor.is_non_overlapping_and_dense())
        return false;
      if (is_count) continue;
      if (tensor.scalar_type() != first->scalar_type() || tensor.sizes() != model.sizes() ||
          tensor.strides() != model.strides())
        return false;
    }
  }
  return true;
}

c10::IValue stretch_of(const c10::IValue& list, std::size_t begin, std::size_t end) {
  c10::impl::GenericList stretch(list.toList().elementType());
  const auto elements = list.toListRef();
  for (std::size_t i = begin; i < std::min(end, elements.size()); ++i) stretch.push_back(elements[i]);
  return stretch;
}

Calls by_stretch(Arguments arguments) {
  // PyTorch's kernel has one block for 64 Ki numbers: smaller stretches would leave most of a device idle.
  constexpr std::size_t kBytes = 32 << 20, kMost = 8;
  if (!arguments.front().isTensorList()) return {};
  const auto tensors = arguments.front().toListRef();
  if (!have_length(arguments, tensors.size()) || !are_alike(arguments)) return {};
  std::size_t all = 0, before = 0, begin = 0;
  for (const auto& tensor : tensors) all += tensor.toTensor().nbytes();
  const std::size_t count = std::min(all / kBytes, kMost);
  if (count < 2) return {};
  Calls calls;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    before += tensors[i].toTensor().nbytes();
    const bool is_last_call = calls.size() + 1 == count;  // which takes empty tensors at the end, too
    if (i + 1 < tensors.size() && (is_last_call || before < (calls.size() + 1) * all / count)) continue;
    calls.emplace_back(arguments.begin(), arguments.end());
    for (c10::IValue& argument : calls.back()) {
      if (argument.isList()) argument = stretch_of(argument, begin, i + 1);
    }
    begin = i + 1;
  }
  return calls;
}

}  // namespace

std::vector<torch::jit::Stack> calls_apart(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  if (has_mask(op)) return by_mask(arguments);
  if (goes_over_lists(op)) return by_stretch(arguments);
  return {};
}

}  // namespace nimble
