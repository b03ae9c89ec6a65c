// On a CPU, pointwise tasks over floats that feed one another go over memory together, block by block.
//
//   %1 = mul(%0, w)
//   %2 = add(%1, b)                  ──▶   %3 = nimble::pointwise_blocks(%0, w, b)
//   %3 = relu(%2)
//
// Comes after what oneDNN takes in: an activation costs nothing there.

#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/pointwise_fusion.h"

namespace nimble {
namespace {

Rewritten apply(Program program, const RewriteContext& context) {
  return fuse_pointwise(program, context, pointwise_kernel_on(c10::kCPU));
}

}  // namespace

const Rewrite kPointwiseBlocks{
    .name = "pointwise_blocks",
    .summary = "pointwise tasks that feed one another go over memory together, block by block",
    .on_cuda = false,
    .apply = apply};

}  // namespace nimble
