// The operators, by schema. None changes its arguments; all results are new tensors in the layout that ATen
// would choose.
#include <torch/library.h>

namespace {

TORCH_LIBRARY_FRAGMENT(nimble, library) {
  // What the expression says (nimble/kernels/expression.h), in one kernel.
  library.def("pointwise(Tensor[] inputs, str expression) -> Tensor[]");

  // after(convolution(before(x)) + bias), one filter for each channel: weight is [channels, 1, height,
  // width].
  library.def(
      "depthwise_convolution(Tensor x, Tensor weight, Tensor? bias, int[2] stride, int[2] padding, "
      "int[2] dilation, str activation_before=\"none\", str activation_after=\"none\") -> Tensor");

  library.def(
      "max_pool2d(Tensor x, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool "
      "ceil_mode, "
      "str activation=\"none\") -> Tensor");
  library.def(
      "avg_pool2d(Tensor x, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, "
      "bool count_include_pad, int? divisor_override=None, str activation=\"none\") -> Tensor");
  library.def("adaptive_avg_pool2d(Tensor x, int[2] output_size, str activation=\"none\") -> Tensor");

  // activation(convolution(x) + bias + residual) with a filter of one pixel: weight is [out, in, 1, 1]. Of
  // the ways that cuBLASLt proposes to compute it, `candidate` counts from the one that it thinks best.
  library.def(
      "pointwise_convolution(Tensor x, Tensor weight, Tensor? bias, Tensor? residual=None, "
      "str activation=\"none\", int candidate=0) -> Tensor");
}

}  // namespace
