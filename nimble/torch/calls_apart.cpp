#include "nimble/torch/calls_apart.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace nimble {
namespace {

// Both have the mask last and return gradients for input, weight and bias. That for the bias is a sum,
// quickly done, and stays with the weight's.
constexpr std::array<std::string_view, 2> kWithMask{"aten::convolution_backward",
                                                    "aten::native_layer_norm_backward"};

}  // namespace

std::vector<torch::jit::Stack> calls_apart(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (std::find(kWithMask.begin(), kWithMask.end(), op.operator_name().name) == kWithMask.end()) return {};
  if (!op.operator_name().overload_name.empty()) return {};
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  if (!arguments.front().toTensor().is_cuda()) return {};
  const auto wanted = arguments.back().toBoolList();
  if (!wanted[0] || !wanted[1]) return {};
  std::vector<torch::jit::Stack> calls;
  for (const c10::List<bool>& mask : {c10::List<bool>{true, false, false}, {false, true, wanted[2]}}) {
    calls.emplace_back(arguments.begin(), arguments.end());
    calls.back().back() = mask;
  }
  return calls;
}

}  // namespace nimble
