#pragma once

#include <optional>

#include "nimble/torch/rewrites/uses.h"

namespace nimble {

// `aten::addmm(bias, input, weight)` or, without a bias, `aten::mm(input, weight)`, of floating-point
// numbers, where the bias is a row that is added to each row of the product and nothing is scaled.
struct LinearLayer {
  TensorRef input, weight, result;
  std::optional<TensorRef> bias = {};

  std::int64_t columns() const { return weight.sizes[1]; }
};
std::optional<LinearLayer> linear_layer(const Task& task);

// One whose weight and bias never change while the program runs.
std::optional<LinearLayer> linear_of_weights(const Task& task, const Uses& uses);

// On a GPU PyTorch may round what such a layer multiplies to TF32.
bool may_round_to_tf32(const LinearLayer& layer);

// Where addmm has its operands.
namespace addmm {
enum Argument { kBias, kInput, kWeight, kBeta, kAlpha };
}

}  // namespace nimble
