// Pointwise tasks that feed one another become one generated kernel.
//
//   %1 = mul(%0, w)
//   %2 = add(%1, b)                  ──▶   %3 = nimble::pointwise(%0, w, b)
//   %3 = relu(%2)
//
// What others read too is written by the same kernel:
//
//   %1 = add(%0, w)
//   %2 = relu(%1)                    ──▶   %1, %2 = nimble::pointwise(%0, w)
//   …  = …(%1)
//
// In training, unless results may round otherwise, only tasks are taken in whose kernels have the bits of
// PyTorch's own, and which round as those do. No product is contracted with a sum across their borders: see
// KernelSource::contract.

#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/pointwise_fusion.h"
#include "nimble/torch/rewrites/pointwise_tasks.h"

namespace nimble {
namespace {

Rewritten apply(Program program, const RewriteContext& context) {
  const PointwiseKernel any = pointwise_kernel_on(c10::kCUDA);
  if (!context.trains || context.tolerant) return fuse_pointwise(program, context, any);
  const auto can_do = [&](const Task& task, const kernels::Step& step) {
    return any.can_do(task, step) && keeps_bits(program, task);
  };
  return fuse_pointwise(program, context, {any.op, can_do});
}

}  // namespace

const Rewrite kFusePointwise{.name = "fuse_pointwise",
                             .summary = "pointwise tasks that feed one another become one generated kernel",
                             .on_cpu = false,
                             .for_training = true,
                             .apply = apply};

}  // namespace nimble
