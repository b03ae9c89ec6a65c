// Convolutions over images run with the channels of a pixel beside each other, which is how a GPU's matrix
// units want them, and where bias, sum and activation fit into the same kernel.
//
//   %1 = convolution(input0, w, …)         %3 = clone(w)            as channels_last
//   %2 = relu(%1)                    ──▶   %1 = convolution(input0, %3, …)
//                                          %2 = relu(%1)
//
// A convolution gives its result in the layout of its weight, and what follows keeps it: so only the
// program's inputs and results are converted, in the first convolution and behind the last task.

#include <ATen/ATen.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"

namespace nimble {
namespace {

Rewritten apply(Program program, const RewriteContext&) {
  static const auto clone = find_operator("aten::clone");
  const Uses uses(program);
  Edit edit(program);
  Rewritten result{.program = {}};
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId id{i};
    const auto convolution = image_convolution(program.task(id), uses);
    if (!convolution || convolution->is_depthwise() || is_channels_last(convolution->weight)) continue;
    const TensorRef& weight = convolution->weight;
    TensorRef turned = edit.new_tensor(weight.sizes, weight.dtype, program.buffer(weight.buffer).device);
    turned.strides = channels_last_strides(weight.sizes);
    edit.insert(id, clone, {weight, c10::IValue(at::MemoryFormat::ChannelsLast)}, {turned});
    std::vector<Operand> arguments = program.task(id).arguments;
    arguments[1] = turned;
    edit.replace(id, program.task(id).op, std::move(arguments), program.task(id).results);
    result.sites.push_back(task_name(program, id));
  }
  result.program = std::move(edit).finish();
  return result;
}

}  // namespace

const Rewrite kChannelsLast{.name = "channels_last",
                            .summary = "convolutions over images keep the channels of a pixel together",
                            .on_cpu = false,
                            .apply = apply};

}  // namespace nimble
