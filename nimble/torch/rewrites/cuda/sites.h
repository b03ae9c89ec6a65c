#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/torch/rewrites/uses.h"

namespace nimble {

// Patterns that the rewrites for kernels of our own share.

// An ordinary convolution over images with weights that do not change.
struct ImageConvolution {
  TensorRef x, weight;
  std::optional<TensorRef> bias;
  std::vector<std::int64_t> stride, padding, dilation;  // two numbers each
  std::int64_t groups;

  bool is_depthwise() const;       // one filter for each channel
  bool is_matrix_product() const;  // a filter of one pixel, over every pixel
};
std::optional<ImageConvolution> image_convolution(const Task& task, const Uses& uses);
// Pixels, weights and bias are of the same type, one that our kernels know.
bool is_of_one_type(const ImageConvolution& convolution);

// The activation that a task applies to its first argument, by the names of nimble/kernels/activation.h.
std::optional<std::string> fusible_activation(const Task& task);

// The two tensors of a plain sum.
struct Sum {
  TensorRef a, b;
};
std::optional<Sum> plain_sum(const Task& task);

// By task: how many tasks lie on the longest way to it.
std::vector<std::size_t> depths(const Program& program);
// And how many on the longest way from it to an end.
std::vector<std::size_t> heights(const Program& program);
// By depths: how many lie on the longest way to one of these tensors, as `reader` sees them: weights are
// there before anything runs, and what is changed later, as an optimizer changes them, is not waited for.
std::size_t depth_of(std::span<const TensorRef> tensors, const Uses& uses,
                     std::span<const std::size_t> depths, TaskId reader);

// Whether products of this type may be made as tensor cores make them: float32 as cuDNN would, by TF32.
bool may_use_tensor_cores(at::ScalarType type);

// Appends the values that an operator has for the arguments that are missing.
void add_defaults(const c10::OperatorHandle& op, std::vector<Operand>& arguments);

// Elements lie in memory one after the other, the last dimension's beside each other.
bool is_contiguous(const TensorRef& ref);

// Channels of a pixel lie beside each other.
bool is_channels_last(const TensorRef& ref);
at::DimVector channels_last_strides(at::IntArrayRef sizes);

}  // namespace nimble
