#include "nimble/torch/rewrites/unrun_convolution.h"

#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>
#include <torch/library.h>

#include <array>

#include "nimble/torch/operator_facts.h"

namespace nimble {
namespace {

// Zeros rather than nothing: who takes them as indices finds something there.
at::Tensor unrun_convolution(const at::Tensor& input, const at::Tensor& weight,
                             const std::optional<at::Tensor>&, at::IntArrayRef stride,
                             at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                             at::IntArrayRef output_padding, std::int64_t groups) {
  const at::DimVector sizes =
      transposed ? at::DimVector(at::native::conv_input_size(input.sizes(), weight.sizes(), padding,
                                                             output_padding, stride, dilation, groups))
                 : at::DimVector(at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride,
                                                              dilation));
  const auto format = input.dim() < 4 ? at::MemoryFormat::Contiguous
                                      : at::native::cudnn_conv_suggest_memory_format(input, weight);
  return at::empty(sizes, input.options().memory_format(format)).zero_();
}

// Which of cuDNN's kernels it is told to take says nothing about the form.
at::Tensor unrun_told_convolution(const at::Tensor& input, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                  at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                  at::IntArrayRef output_padding, std::int64_t groups, bool, bool, bool,
                                  bool) {
  return unrun_convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                           groups);
}

TORCH_LIBRARY_FRAGMENT(nimble, library) {
  library.def(
      "unrun_convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] "
      "dilation, bool transposed, int[] output_padding, int groups) -> Tensor");
  library.def(
      "unrun_convolution.told(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] "
      "dilation, bool transposed, int[] output_padding, int groups, bool benchmark, bool deterministic, bool "
      "cudnn_enabled, bool allow_tf32) -> Tensor");
}
TORCH_LIBRARY_IMPL(nimble, CUDA, library) {
  library.impl("unrun_convolution", unrun_convolution);
  library.impl("unrun_convolution.told", unrun_told_convolution);
}

struct StandIn {
  c10::OperatorHandle op, stands_in;
};
const std::array<StandIn, 2>& stand_ins() {
  static const std::array<StandIn, 2> pairs = {
      {{find_operator("aten::convolution"), find_operator("nimble::unrun_convolution")},
       {find_operator("aten::_convolution"), find_operator("nimble::unrun_convolution", "told")}}};
  return pairs;
}

}  // namespace

c10::OperatorHandle unrun(const c10::OperatorHandle& op) {
  for (const StandIn& pair : stand_ins()) {
    if (op == pair.op) return pair.stands_in;
  }
  return op;
}

c10::OperatorHandle run_again(const c10::OperatorHandle& op) {
  for (const StandIn& pair : stand_ins()) {
    if (op == pair.stands_in) return pair.op;
  }
  return op;
}

}  // namespace nimble
