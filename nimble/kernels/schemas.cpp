// The operators, by schema. Results are new tensors in the layout that ATen would choose, or are written to
// `out` (see into.h). No operator changes anything else, but for those that say so.
#include <torch/library.h>

namespace {

TORCH_LIBRARY_FRAGMENT(nimble, library) {
  // What the expression says (nimble/kernels/expression.h), in one kernel.
  library.def("pointwise(Tensor[] inputs, str expression) -> Tensor[]");
  library.def("pointwise.out(Tensor[] inputs, str expression, *, Tensor(a!)[] out) -> ()");

  // The same for floats on a CPU, by loops over blocks that stay in its caches.
  library.def("pointwise_blocks(Tensor[] inputs, str expression) -> Tensor[]");

  // The same with one step that is over rows: a layer norm or a softmax. Of the ways to divide the work,
  // `candidate` counts from the one that should be fastest.
  library.def("rows(Tensor[] inputs, str expression, int candidate=0) -> Tensor[]");

  // The same for lists of tensors, with steps that are ATen's foreach operators: each value of the expression
  // is a list of `count` tensors. The inputs are the lists of `written` and then those of `read`, which lie
  // there one behind the other. The first results go into the lists `written`, in place; the others are new
  // and are returned, one list behind the other.
  library.def(
      "foreach_pointwise(Tensor(a!)[] written, Tensor[] read, str expression, int count) -> Tensor[]");

  // activation(batch norm(x) + residual), with the statistics of the batch, which move the running ones. Also
  // returns the batch's mean, the inverse of its deviation, and room that the kernels use.
  library.def(
      "batch_norm_training(Tensor x, Tensor weight, Tensor bias, Tensor(a!)? running_mean, Tensor(b!)? "
      "running_variance, float momentum, float epsilon, Tensor? residual=None, str activation=\"none\") -> "
      "(Tensor, Tensor, Tensor, Tensor)");

  // The way back through activation(batch norm(x)): the gradients of x, of the weight and of the bias, and
  // room that the kernels use.
  library.def(
      "batch_norm_training_backward(Tensor gradient, Tensor x, Tensor weight, Tensor bias, Tensor mean, "
      "Tensor inverse_deviation, str activation=\"none\") -> (Tensor, Tensor, Tensor, Tensor)");

  // after(convolution(before(x)) + bias), one filter for each channel: weight is [channels, 1, height,
  // width]. Of the ways to divide the work, there is number 0, by many threads, and number 1, by threads that
  // do much each.
  library.def(
      "depthwise_convolution(Tensor x, Tensor weight, Tensor? bias, int[2] stride, int[2] padding, "
      "int[2] dilation, str activation_before=\"none\", str activation_after=\"none\", int candidate=0) -> "
      "Tensor");
  library.def(
      "depthwise_convolution.out(Tensor x, Tensor weight, Tensor? bias, int[2] stride, int[2] padding, "
      "int[2] dilation, str activation_before=\"none\", str activation_after=\"none\", int candidate=0, *, "
      "Tensor(a!) out) -> Tensor(a!)");

  library.def(
      "max_pool2d(Tensor x, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool "
      "ceil_mode, "
      "str activation=\"none\") -> Tensor");
  library.def(
      "max_pool2d.out(Tensor x, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool "
      "ceil_mode, str activation=\"none\", *, Tensor(a!) out) -> Tensor(a!)");
  library.def(
      "avg_pool2d(Tensor x, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, "
      "bool count_include_pad, int? divisor_override=None, str activation=\"none\") -> Tensor");
  library.def(
      "avg_pool2d.out(Tensor x, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, "
      "bool count_include_pad, int? divisor_override=None, str activation=\"none\", *, Tensor(a!) out) "
      "-> Tensor(a!)");
  library.def("adaptive_avg_pool2d(Tensor x, int[2] output_size, str activation=\"none\") -> Tensor");

  // activation(convolution(x) + bias + residual) with a filter of one pixel: weight is [out, in, 1, 1]. Of
  // the ways that cuBLASLt proposes to compute it, `candidate` counts from the one that it thinks best.
  library.def(
      "pointwise_convolution(Tensor x, Tensor weight, Tensor? bias, Tensor? residual=None, "
      "str activation=\"none\", int candidate=0) -> Tensor");
  library.def(
      "pointwise_convolution.out(Tensor x, Tensor weight, Tensor? bias, Tensor? residual=None, "
      "str activation=\"none\", int candidate=0, *, Tensor(a!) out) -> Tensor(a!)");

  // activation(convolution(x) + residual + bias). Of the ways that cuDNN proposes to compute it, `candidate`
  // counts from the one that it thinks best.
  library.def(
      "fused_convolution(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int[2] stride, int[2] "
      "padding, int[2] dilation, int groups, str activation=\"none\", int candidate=0) -> Tensor");
  library.def(
      "fused_convolution.out(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int[2] stride, int[2] "
      "padding, int[2] dilation, int groups, str activation=\"none\", int candidate=0, *, "
      "Tensor(a!) out) -> Tensor(a!)");

  // pointwise_convolution by a kernel of our own, with room for a depthwise convolution before it:
  // activation(convolution(between(depthwise convolution(before(x)) + filter_bias)) + bias + residual), where
  // the filters are [in, 1, height, width]. Of the ways to divide the work, `candidate` counts from the one
  // that should be fastest. Products of float32 are made of parts, as exact as it is, or rounded by `tf32`.
  library.def(
      "matrix_convolution(Tensor x, Tensor weight, Tensor? bias, Tensor? residual=None, "
      "str activation=\"none\", int candidate=0, Tensor? filters=None, Tensor? filter_bias=None, "
      "int[2] stride=1, int[2] padding=0, int[2] dilation=1, str activation_before=\"none\", "
      "str activation_between=\"none\", bool tf32=False) -> Tensor");
  library.def(
      "matrix_convolution.out(Tensor x, Tensor weight, Tensor? bias, Tensor? residual=None, "
      "str activation=\"none\", int candidate=0, Tensor? filters=None, Tensor? filter_bias=None, "
      "int[2] stride=1, int[2] padding=0, int[2] dilation=1, str activation_before=\"none\", "
      "str activation_between=\"none\", bool tf32=False, *, Tensor(a!) out) -> Tensor(a!)");

  // activation(convolution(x) + bias) with filters of one pixel, for each of the weights and their biases,
  // which all have or none has, in one launch. The rest as in matrix_convolution.
  library.def(
      "matrix_convolutions(Tensor x, Tensor[] weights, Tensor[] biases, str activation=\"none\", "
      "int candidate=0, bool tf32=False) -> Tensor[]");
  library.def(
      "matrix_convolutions.out(Tensor x, Tensor[] weights, Tensor[] biases, str activation=\"none\", "
      "int candidate=0, bool tf32=False, *, Tensor(a!)[] out) -> ()");
}

}  // namespace
