#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nimble/torch/rewrites/cuda/sites.h"

namespace nimble {

// Convolutions as products of matrices, by our own kernel or by cuBLASLt's.

// after(convolution + added), in one call.
struct ConvolutionCall {
  ImageConvolution convolution;
  std::optional<TensorRef> added = {};
  std::string after = "none";
};
// What a convolution does: a plain one of PyTorch's, one of cuDNN's with a relu, or one of ours without a
// depthwise part.
std::optional<ConvolutionCall> convolution_call(const Task& task, const Uses& uses);

// Whether our kernel by tensor cores may be asked, and knows such filters.
bool fits_matrix_kernel(const ImageConvolution& convolution);
// Whether it has a chance to be fastest: of few channels to a pixel tensor cores would multiply zeros.
bool suits_matrix_kernel(const ImageConvolution& convolution);

// For nimble::matrix_convolution and nimble::pointwise_convolution: of the ways that they have the one with
// this number.
std::vector<Operand> product_arguments(const c10::OperatorHandle& op, const ConvolutionCall& call,
                                       std::int64_t number);

// A way to do it by our kernel.
struct MatrixWay {
  std::string name;
  std::vector<Operand> arguments;
};
// Those that are worth to be measured, the best guess first. What is as exact as float32 comes before what
// rounds to TF32, which is none where a product is `precise`.
std::vector<MatrixWay> matrix_ways(const ConvolutionCall& call, bool precise);

}  // namespace nimble
