// On the CPU, convolutions run in oneDNN with weights that were brought into its own layout once, channels
// last, with what follows them done in the same kernel.
//
//   %1 = convolution(input0, w, b, …)
//   %2 = add(%1, input1)             ──▶   %3 = nimble::mkldnn_convolution(input0, w, b, input1, "relu", …)
//   %3 = relu(%2)

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/packed.h"
#include "nimble/torch/rewrites/activations.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/convolution.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

using Scalars = c10::List<std::optional<at::Scalar>>;

Scalars to_scalars(at::ArrayRef<double> numbers) {
  Scalars scalars;
  for (const double number : numbers) scalars.push_back(at::Scalar(number));
  return scalars;
}

// `activation` is one of oneDNN's, or "none"; `other`, where given, is added before it.
at::Tensor mkldnn_convolution(const at::Tensor& input, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& other,
                              const c10::intrusive_ptr<Packed>& packed, at::IntArrayRef padding,
                              at::IntArrayRef stride, at::IntArrayRef dilation, std::int64_t groups,
                              c10::string_view activation, at::ArrayRef<double> numbers,
                              c10::string_view algorithm) {
  using Reorder = at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                             std::int64_t, at::OptionalIntArrayRef);
  using Unary = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                           at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t, c10::string_view,
                           Scalars, std::optional<c10::string_view>);
  using Binary = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const std::optional<at::Tensor>&, at::IntArrayRef, at::IntArrayRef,
                            at::IntArrayRef, std::int64_t, c10::string_view, std::optional<at::Scalar>,
                            std::optional<c10::string_view>, Scalars, std::optional<c10::string_view>);
  static const auto reorder = find_operator("mkldnn::_reorder_convolution_weight").typed<Reorder>();
  static const auto unary = find_operator("mkldnn::_convolution_pointwise").typed<Unary>();
  static const auto binary = find_operator("mkldnn::_convolution_pointwise", "binary").typed<Binary>();
  const at::Tensor& ready =
      packed->get([&] { return reorder.call(weight, padding, stride, dilation, groups, input.sizes()); });
  if (!other) {
    return unary.call(input, ready, bias, padding, stride, dilation, groups, activation, to_scalars(numbers),
                      algorithm);
  }
  const auto after = activation == "none" ? std::nullopt : std::optional(activation);
  return binary.call(input, *other, ready, bias, padding, stride, dilation, groups, "add", at::Scalar(1.0),
                     after, to_scalars(numbers), algorithm);
}

using namespace convolution;

bool is_convolution(const Task& task, const Uses& uses) {
  if (!is_call_of(task, "aten::convolution") || value_argument(task, kTransposed).toBool()) return false;
  const TensorRef& input = *tensor_argument(task, kInput);
  const TensorRef& weight = *tensor_argument(task, kWeight);
  const TensorRef* bias = tensor_argument(task, kBias);
  return input.sizes.size() == 4 && input.dtype == at::kFloat && weight.dtype == at::kFloat &&
         input.numel() > 0 && uses.is_weight(weight) && (!bias || uses.is_weight(*bias));
}

// The tensor that is added to the result of `task` by `sum`, if it is an addition of two tensors of that
// shape.
const TensorRef* added_to(const Task& task, const Task& sum) {
  if (!is_call_of(sum, "aten::add") || sum.arguments.size() != 3 || !tensor_argument(sum, 0)) return nullptr;
  if (!tensor_argument(sum, 1) || value_argument(sum, 2).toScalar().toDouble() != 1) return nullptr;
  const TensorRef& result = first_result(task);
  const TensorRef* other = tensor_argument(sum, tensor_argument(sum, 0)->buffer == result.buffer ? 1 : 0);
  return other->sizes == result.sizes && other->dtype == result.dtype ? other : nullptr;
}

// The same tensor channels last, as it will be if its neighbours are convolutions like these.
Operand channels_last(Operand operand) {
  auto* ref = std::get_if<TensorRef>(&operand);
  if (ref && ref->sizes.size() == 4) {
    ref->strides = {ref->sizes[1] * ref->sizes[2] * ref->sizes[3], 1, ref->sizes[3] * ref->sizes[1],
                    ref->sizes[1]};
    ref->offset = 0;
  }
  return operand;
}

class Fuse {
 public:
  Fuse(const Program& program, const RewriteContext& context)
      : program_(program), uses_(program), edit_(program), chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      if (is_convolution(program_.task(TaskId{i}), uses_)) fuse(TaskId{i});
    }
    return {std::move(edit_).finish(), std::move(sites_), chooser_.gained()};
  }

 private:
  // A convolution and what it takes in.
  struct Chain {
    std::vector<TaskId> tasks;
    Operand other = c10::IValue();
    Activation activation = {"none"};
  };

  Chain chain_from(TaskId convolution) const {
    Chain chain{.tasks = {convolution}};
    // What comes next, if all before can as well run there.
    const auto next = [&]() -> std::optional<TaskId> {
      const auto reader = uses_.only_reader(chain.tasks.back());
      const bool free = reader && !edit_.touches(*reader) && std::ranges::all_of(chain.tasks, [&](TaskId id) {
                          return uses_.can_move(id, *reader);
                        });
      return free ? reader : std::nullopt;
    };
    if (const auto sum = next()) {
      if (const TensorRef* added = added_to(program_.task(convolution), program_.task(*sum))) {
        chain.other = *added;
        chain.tasks.push_back(*sum);
      }
    }
    if (const auto last = next()) {
      auto activation = activation_of(program_.task(*last));
      const bool behind_a_sum = chain.tasks.size() > 1;  // where PyTorch's oneDNN calls know relu alone
      if (activation && (!behind_a_sum || activation->name == "relu")) {
        chain.activation = *std::move(activation);
        chain.tasks.push_back(*last);
      }
    }
    return chain;
  }

  std::vector<Operand> arguments(const Chain& chain) const {
    const Task& convolution = program_.task(chain.tasks.front());
    return {convolution.arguments[kInput],
            convolution.arguments[kWeight],
            convolution.arguments[kBias],
            chain.other,
            Packed::make(),
            convolution.arguments[kPadding],
            convolution.arguments[kStride],
            convolution.arguments[kDilation],
            convolution.arguments[kGroups],
            c10::IValue(chain.activation.name),
            c10::IValue(chain.activation.numbers),
            c10::IValue(chain.activation.algorithm)};
  }

  bool is_faster(const Chain& chain, const c10::OperatorHandle& op) {
    std::vector<Task> before;
    for (const TaskId id : chain.tasks) before.push_back(program_.task(id));
    std::vector<Operand> in_one = arguments(chain);
    in_one[0] = channels_last(std::move(in_one[0]));
    in_one[3] = channels_last(std::move(in_one[3]));
    const TaskId last = chain.tasks.back();
    const std::vector<Task> after = {
        edit_.make_task(last, op, std::move(in_one), program_.task(last).results)};
    // One that stays behind costs conversions between its layout and that of its neighbours.
    constexpr double kMuchFaster = 0.7;
    if (chooser_.faster_of(edit_.buffers(), std::vector{after, before}, kMuchFaster) != 0) return false;
    chooser_.took(after, before);
    return true;
  }

  void fuse(TaskId id) {
    static const auto op = find_operator("nimble::mkldnn_convolution");
    const Chain chain = chain_from(id);
    if (!is_faster(chain, op)) return;
    std::string site;
    for (const TaskId task : chain.tasks) {
      site += (site.empty() ? "" : " + ") + task_name(program_, task);
      if (task != chain.tasks.back()) edit_.drop(task);
    }
    const TaskId last = chain.tasks.back();
    edit_.replace(last, op, arguments(chain), program_.task(last).results);
    sites_.push_back(std::move(site));
  }

  const Program& program_;
  Uses uses_;
  Edit edit_;
  Chooser chooser_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) { return Fuse(program, context).run(); }

}  // namespace

const Rewrite kMkldnnConvolution{
    .name = "mkldnn_convolution",
    .summary =
        "convolutions on the CPU with packed weights, channels last, and what follows them in one kernel",
    .on_cuda = false,
    .apply = apply};

}  // namespace nimble

TORCH_LIBRARY_FRAGMENT(nimble, library) {
  library.def(
      "mkldnn_convolution(Tensor input, Tensor weight, Tensor? bias, Tensor? other, "
      "__torch__.torch.classes.nimble.Packed packed, int[] padding, int[] stride, int[] dilation, int "
      "groups, "
      "str activation, float[] numbers, str algorithm) -> Tensor",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(nimble::mkldnn_convolution)));
}
