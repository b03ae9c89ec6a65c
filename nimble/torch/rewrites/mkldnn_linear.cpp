// On the CPU, linear layers run in oneDNN with weights that were brought into its own layout once, with the
// activation that follows in the same kernel, where that measures faster.
//
//   %1 = addmm(b, input0, w)         ──▶   %2 = nimble::mkldnn_linear(input0, w, b, "gelu")
//   %2 = gelu(%1)

#include <ATen/ATen.h>
#include <torch/library.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/packed.h"
#include "nimble/torch/rewrites/activations.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/linear_layer.h"
#include "nimble/torch/rewrites/onednn.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

// `weight` is as aten::addmm takes it: inputs by outputs.
at::Tensor mkldnn_linear(const at::Tensor& input, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias, const c10::intrusive_ptr<Packed>& packed,
                         c10::string_view activation, at::ArrayRef<double> numbers,
                         c10::string_view algorithm) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Reorder = at::Tensor(const at::Tensor&, std::optional<std::int64_t>);
  using Linear = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                            c10::string_view, Scalars, std::optional<c10::string_view>);
  static const auto reorder = find_operator("mkldnn::_reorder_linear_weight").typed<Reorder>();
  static const auto linear = find_operator("mkldnn::_linear_pointwise").typed<Linear>();
  const at::Tensor& ready = packed->get([&] { return reorder.call(weight.t().contiguous(), input.size(0)); });
  return linear.call(input, ready, bias, activation, onednn_scalars(numbers), algorithm);
}

std::optional<LinearLayer> layer_for_onednn(const Task& task, const Uses& uses) {
  auto layer = linear_of_weights(task, uses);
  const bool fits =
      layer && onednn_computes(layer->input.dtype) && layer->input.numel() > 0 && layer->weight.numel() > 0;
  return fits ? std::move(layer) : std::nullopt;
}

Rewritten apply(Program program, const RewriteContext& context) {
  static const auto op = find_operator("nimble::mkldnn_linear");
  const Uses uses(program);
  Edit edit(program);
  Chooser chooser(context);
  std::vector<std::string> sites;
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId id{i};
    const Task& linear = program.task(id);
    const auto layer = layer_for_onednn(linear, uses);
    if (!layer) continue;
    TaskId last = id;
    Activation activation{"none"};
    std::vector<Task> before = {linear};
    std::string site = task_name(program, id);
    if (const auto next = uses.only_reader(id); next && uses.can_move(id, *next)) {
      if (auto found = activation_of(program.task(*next))) {
        activation = *std::move(found);
        last = *next;
        before.push_back(program.task(last));
        site += " + " + task_name(program, last);
      }
    }
    const auto arguments = [&]() -> std::vector<Operand> {
      return {layer->input,
              layer->weight,
              optional_ref(layer->bias),
              Packed::make(),
              c10::IValue(activation.name),
              c10::IValue(activation.numbers),
              c10::IValue(activation.algorithm)};
    };
    const std::vector<Task> after = {edit.make_task(last, op, arguments(), program.task(last).results)};
    if (chooser.faster_of(edit.buffers(), std::vector{before, after}) == 0) continue;
    chooser.took(after, before);
    if (last != id) edit.drop(id);
    edit.replace(last, op, arguments(), program.task(last).results);
    sites.push_back(std::move(site));
  }
  return {std::move(edit).finish(), std::move(sites), chooser.gained()};
}

}  // namespace

const Rewrite kMkldnnLinear{
    .name = "mkldnn_linear",
    .summary =
        "linear layers on the CPU with packed weights and their activation in one kernel, where faster",
    .on_cuda = false,
    .apply = apply};

}  // namespace nimble

TORCH_LIBRARY_FRAGMENT(nimble, library) {
  library.def(
      "mkldnn_linear(Tensor input, Tensor weight, Tensor? bias, __torch__.torch.classes.nimble.Packed "
      "packed, "
      "str activation, float[] numbers, str algorithm) -> Tensor",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(nimble::mkldnn_linear)));
}
