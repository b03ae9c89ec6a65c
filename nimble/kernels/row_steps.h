#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "nimble/kernels/expression.h"

namespace nimble::kernels {

// Calls that look at whole rows, the last dimensions of a tensor. Layer norms and softmaxes give a row again;
// sums, means, largest and smallest values and norms give one number for each.
bool is_over_rows(const Step& step);
bool gives_numbers(const Step& step);

// How many of the last dimensions of `x`, the first argument, make a row; 0 where the call is over others.
std::size_t row_dimensions(const Step& step, const at::Tensor& x);

// What such a call makes of `x`, without data. Results of all of them are contiguous.
at::Tensor made_over_rows(const Step& step, const at::Tensor& x);

// The device's function over a row (device/rows.cu); empty where there is none.
std::string device_function(const Step& step);
// What a norm adds under its root.
std::optional<c10::IValue> epsilon_of(const Step& step);
// What a norm multiplies each element with, and adds to it.
struct Affine {
  std::optional<Value> weight, bias;
};
Affine affine_of(const Step& step);

}  // namespace nimble::kernels
