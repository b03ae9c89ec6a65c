// A linear layer takes its activation into the same product.
//
//   %1 = addmm(b, %0, w)             ──▶   %2 = _addmm_activation(b, %0, w)
//   %2 = relu(%1)

#include <ATen/ATen.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/linear_layer.h"
#include "nimble/torch/tf32.h"

namespace nimble {
namespace {

// cuBLASLt knows two activations. Its gelu, the one by tanh, is quick, and its error lies below the rounding
// of half precision and of TF32, but above that of float32.
bool has_epilogue(const std::optional<std::string>& activation, at::ScalarType type) {
  const bool rounds_more =
      at::isReducedFloatingType(type) || (type == at::kFloat && allows_tf32(at::Float32Op::MATMUL));
  return activation == "relu" || (activation == "gelu_tanh" && rounds_more);
}

// cuBLASLt adds a bias of one number for each column.
bool fits(const Uses& uses, const Task& task) {
  const auto layer = linear_layer(task);
  return layer && layer->bias && uses.never_rewritten(layer->input) && uses.never_rewritten(layer->weight) &&
         uses.never_rewritten(*layer->bias);
}

Rewritten apply(Program program, const RewriteContext& context) {
  static const auto fused = find_operator("aten::_addmm_activation");
  const Uses uses(program);
  Edit edit(program);
  Chooser chooser(context);
  Rewritten result{.program = {}};
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId id{i};
    const Task& linear = program.task(id);
    if (!fits(uses, linear)) continue;
    const auto reader = uses.only_reader(id);
    if (!reader) continue;
    const auto activation = fusible_activation(program.task(*reader));
    if (!has_epilogue(activation, first_result(linear).dtype)) continue;
    std::vector<Operand> arguments = linear.arguments;
    arguments.emplace_back(c10::IValue(activation == "gelu_tanh"));
    const std::vector<Operand> results = program.task(*reader).results;
    const std::vector<std::vector<Task>> candidates = {{edit.make_task(*reader, fused, arguments, results)},
                                                       {linear, program.task(*reader)}};
    if (chooser.faster_of(edit.buffers(), candidates) != 0) continue;
    chooser.took(candidates[0], candidates[1]);
    edit.replace(*reader, fused, std::move(arguments), results);
    edit.drop(id);
    result.sites.push_back(task_name(program, *reader) + " into " + task_name(program, id));
  }
  result.program = std::move(edit).finish();
  result.gained = chooser.gained();
  return result;
}

}  // namespace

const Rewrite kLinearActivation{.name = "linear_activation",
                                .summary = "linear layers take in the activation behind them",
                                .on_cpu = false,
                                .apply = apply};

}  // namespace nimble
