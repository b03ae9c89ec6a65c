#pragma once

#include <functional>

#include "nimble/kernels/expression.h"
#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// What does the work of several pointwise tasks at once: an operator that takes tensors and an expression.
struct PointwiseKernel {
  c10::OperatorHandle op;
  std::function<bool(const Task& task, const kernels::Step& step)> can_do;
};

// The one for programs on this device: loops over blocks for floats on a CPU, generated kernels on a GPU.
PointwiseKernel pointwise_kernel_on(c10::Device device);

// Pointwise tasks that feed one another become one call of the kernel, where that is faster.
//
// A task takes in those that make what it waits for longest: work that could have been done meanwhile, beside
// something slower, stays where it is. What others read too is one more result of the kernel, if that then
// begins no later than before; so nothing is computed twice, and several readers may share the kernel of what
// they read. Branches that have nothing but an input in common are never glued side by side.
Rewritten fuse_pointwise(const Program& program, const RewriteContext& context,
                         const PointwiseKernel& kernel);

}  // namespace nimble
