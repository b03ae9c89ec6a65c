// On a CPU, pointwise tasks over floats that feed one another go over memory together, block by block.
//
//   %1 = mul(%0, w)
//   %2 = add(%1, b)                  ──▶   %3 = nimble::pointwise_blocks(%0, w, b)
//   %3 = relu(%2)
//
// Comes after what oneDNN takes in: an activation costs nothing there.

#include "nimble/kernels/cpu/block_program.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/pointwise_fusion.h"

namespace nimble {
namespace {

bool is_of_floats(const Task& task) {
  const auto is_float = [](const TensorRef& ref) { return ref.dtype == at::kFloat; };
  return std::ranges::all_of(task.reads, is_float) && std::ranges::all_of(task.writes, is_float);
}

Rewritten apply(Program program, const RewriteContext& context) {
  static const auto op = find_operator("nimble::pointwise_blocks");
  return fuse_pointwise(program, context, {op, [](const Task& task, const kernels::Step& step) {
                                             return is_of_floats(task) && kernels::has_block_function(step);
                                           }});
}

}  // namespace

const Rewrite kPointwiseBlocks{
    .name = "pointwise_blocks",
    .summary = "pointwise tasks that feed one another go over memory together, block by block",
    .on_cuda = false,
    .apply = apply};

}  // namespace nimble
