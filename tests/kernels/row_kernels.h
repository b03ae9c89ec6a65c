#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "nimble/kernels/row_source.h"
#include "tests/kernels/run_expression.h"

namespace nimble::testing {

// Kernels over rows, run on the host, against the calls of ATen that they stand for.

using Tensors = std::vector<at::Tensor>;

inline constexpr auto kTypes = {at::kFloat, at::kHalf, at::kBFloat16};
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline Ran run_kernel(const std::string& text, const Tensors& inputs, std::int64_t candidate = 0) {
  const auto source = [&](const auto&... what) { return kernels::row_source(what..., candidate); };
  return run_expression(source, text, inputs);
}

inline bool has_kernel(const std::string& text, const Tensors& inputs) {
  const kernels::Expression expression = kernels::parse_expression(text);
  Tensors shapes;
  for (const at::Tensor& tensor : inputs) shapes.push_back(without_memory(tensor));
  return kernels::has_row_kernel(expression, inputs, evaluate_steps(expression, shapes));
}

inline Tensors in_double(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor);
  }
  return result;
}

inline double error_of(const at::Tensor& given, const at::Tensor& exact) {
  return (given.to(at::kDouble) - exact).abs().max().item<double>();
}

// At most twice as far from float64 as ATen's own calls, or one rounding of the largest value; ATen's layout.
inline void expect_as_near_as_aten(const std::string& text, const Tensors& inputs) {
  const kernels::Expression expression = kernels::parse_expression(text);
  const Tensors expected = evaluate(expression, inputs), exact = evaluate(expression, in_double(inputs));
  const Tensors results = run_kernel(text, inputs).results;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(results[i].scalar_type(), expected[i].scalar_type()) << text;
    ASSERT_EQ(results[i].strides(), expected[i].strides()) << text;
    const double rounding = at::isReducedFloatingType(results[i].scalar_type())
                                ? (results[i].scalar_type() == at::kHalf ? 0x1p-10 : 0x1p-7)
                                : 0x1p-22;
    const double allowed =
        std::max(2 * error_of(expected[i], exact[i]), rounding * exact[i].abs().max().item<double>());
    EXPECT_LE(error_of(results[i], exact[i]), allowed) << text << " of " << inputs[0].sizes();
  }
}

// Which elements are no numbers, or infinite, is ATen's answer too; the others are near.
inline void expect_same_kinds(const std::string& text, const Tensors& inputs) {
  const at::Tensor expected = evaluate(kernels::parse_expression(text), inputs).at(0);
  const at::Tensor given = run_kernel(text, inputs).results.at(0);
  EXPECT_TRUE(at::allclose(given, expected, 1e-5, 1e-6, /*equal_nan=*/true)) << given << expected;
}

}  // namespace nimble::testing
