#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/launch.h"
#include "nimble/kernels/cuda/matrix_convolution.h"
#include "nimble/kernels/into.h"
#include "nimble/kernels/matrix_source.h"
#include "nimble/kernels/references.h"

namespace nimble::kernels {
namespace {

std::optional<at::Tensor> bias_of(at::TensorList biases, std::size_t n) {
  return biases.empty() ? std::nullopt : std::optional(biases[n]);
}

// Filters of one pixel, one right behind the other.
bool is_dense(const at::Tensor& weight) {
  return weight.dim() == 4 && weight.size(2) == 1 && weight.size(3) == 1 &&
         (weight.size(0) == 1 || weight.stride(0) == weight.size(1));
}

bool has_kernel(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  if (weights.empty() || weights.size() > kMostProducts) return false;
  for (std::size_t n = 0; n < weights.size(); ++n) {
    if (!is_dense(weights[n]) || !has_matrix_kernel(x, weights[n], bias_of(biases, n))) return false;
  }
  return true;
}

std::vector<at::Tensor> empty_results(const at::Tensor& x, at::TensorList weights) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& weight : weights) {
    results.push_back(at::empty({x.size(0), weight.size(0), x.size(2), x.size(3)},
                                x.options().memory_format(at::MemoryFormat::ChannelsLast)));
  }
  return results;
}

void launch_group(const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                  std::string_view activation, std::int64_t candidate, bool tf32, at::TensorList out) {
  const ImageLayout pixels = as_one_row(x);
  std::vector<MatrixConvolution> products;
  for (std::size_t n = 0; n < weights.size(); ++n) {
    expect_fits(out[n], {x.size(0), weights[n].size(0), x.size(2), x.size(3)}, x.scalar_type());
    const std::int64_t y_step = *pixel_step(out[n]);
    const auto bias = bias_of(biases, n);
    products.push_back({.x = pixels,
                        .channels = weights[n].size(0),
                        .out_height = pixels.height,
                        .out_width = pixels.width,
                        .weight_row = x.size(1),
                        .y_step = y_step,
                        .residual_step = y_step,
                        .dtype = x.scalar_type(),
                        .after = activation,
                        .has_filters = false,
                        .window = Window({1, 1}, {1, 1}, {0, 0}, {1, 1}),
                        .before = "none",
                        .between = "none",
                        .tf32 = tf32,
                        .weight_first = address_in_elements(weights[n]),
                        .y_first = address_in_elements(out[n]),
                        .bias_first = bias ? std::optional(address_in_elements(*bias)) : std::nullopt,
                        .residual_first = {},
                        .filters_first = {},
                        .filter_bias_first = {}});
  }
  const KernelSource kernel = matrix_group_source(products, candidate);
  if (x.is_meta()) return launch_with_table(kernel, {});
  launch_with_table(kernel, matrix_group_table(products, candidate, x, weights, biases, out));
}

std::vector<at::Tensor> matrix_convolutions_cuda(const at::Tensor& x, at::TensorList weights,
                                                 at::TensorList biases, std::string_view activation,
                                                 std::int64_t candidate, bool tf32) {
  if (!biases.empty()) expect_as_many(biases, weights.size());
  if (!has_kernel(x, weights, biases)) {
    return matrix_convolutions(x, weights, biases, activation, candidate, tf32);
  }
  const auto guard = on_device_of(x);
  std::vector<at::Tensor> results = empty_results(x, weights);
  launch_group(x, weights, biases, activation, candidate, tf32, results);
  return results;
}

void matrix_convolutions_out_cuda(const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                                  std::string_view activation, std::int64_t candidate, bool tf32,
                                  at::TensorList out) {
  if (!biases.empty()) expect_as_many(biases, weights.size());
  expect_as_many(out, weights.size());
  const bool has_places = std::all_of(
      out.begin(), out.end(), [](const at::Tensor& place) { return place.dim() == 4 && pixel_step(place); });
  if (!has_places || !has_kernel(x, weights, biases)) {
    return copy_into(out, matrix_convolutions_cuda(x, weights, biases, activation, candidate, tf32));
  }
  const auto guard = on_device_of(x);
  launch_group(x, weights, biases, activation, candidate, tf32, out);
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) {
  library.impl("matrix_convolutions", matrix_convolutions_cuda);
  library.impl("matrix_convolutions.out", matrix_convolutions_out_cuda);
}

// Without memory they tell shapes, and which kernel they need.
TORCH_LIBRARY_IMPL(nimble, Meta, library) {
  library.impl("matrix_convolutions", matrix_convolutions_cuda);
  library.impl("matrix_convolutions.out", matrix_convolutions_out_cuda);
}

}  // namespace
}  // namespace nimble::kernels
