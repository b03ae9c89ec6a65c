#pragma once

#include <ATen/core/Tensor.h>

namespace nimble {

// How far apart the values of two tensors are, computed in float64.
struct Distance {
  double mean = 0;  // root of the mean square
  double largest = 0;
};

// Infinite where only one of two values is a finite number.
Distance distance(const at::Tensor& a, const at::Tensor& b);

// The largest finite value; 0 where there is none.
double largest_value(const at::Tensor& tensor);

}  // namespace nimble
