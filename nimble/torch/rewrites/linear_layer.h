#pragma once

#include <optional>

#include "nimble/torch/program.h"

namespace nimble {

// `aten::addmm(bias, input, weight)` or, without a bias, `aten::mm(input, weight)`, of floating-point
// numbers, where the bias is a row that is added to each row of the product and nothing is scaled.
struct LinearLayer {
  TensorRef input, weight, result;
  std::optional<TensorRef> bias = {};

  std::int64_t columns() const { return weight.sizes[1]; }
};
std::optional<LinearLayer> linear_layer(const Task& task);

// Where addmm has its operands.
namespace addmm {
enum Argument { kBias, kInput, kWeight, kBeta, kAlpha };
}

}  // namespace nimble
