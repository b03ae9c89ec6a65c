// On the CPU, convolutions run in oneDNN with weights that were brought into its own layout once, channels
// last, with what follows them done in the same kernel.
//
//   %1 = convolution(input0, w, b, …)
//   %2 = add(%1, input1)             ──▶   %3 = nimble::mkldnn_convolution(input0, w, b, input1, "relu", …)
//   %3 = relu(%2)

#include <algorithm>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/packed.h"
#include "nimble/torch/rewrites/activations.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/convolution.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/onednn.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

using namespace convolution;

// PyTorch lets one number stand for all dimensions; its calls of oneDNN do not.
std::vector<std::int64_t> for_each_dimension(const Task& convolution, Argument numbers) {
  std::vector<std::int64_t> given = value_argument(convolution, numbers).toIntVector();
  if (given.size() == 1) given.resize(first_result(convolution).sizes.size() - 2, given[0]);
  return given;
}

// Neither depthwise nor with more output padding than its stride explains.
bool has_transposed_kernel(const Task& task) {
  const TensorRef& weight = *tensor_argument(task, kWeight);
  const bool depthwise = value_argument(task, kGroups).toInt() > 1 && weight.sizes[1] == 1;
  const auto behind = for_each_dimension(task, kOutputPadding), stride = for_each_dimension(task, kStride);
  return !depthwise && std::ranges::equal(behind, stride, std::ranges::less());
}

// Of lines oneDNN has no packed weights in PyTorch, and of volumes in half precision PyTorch's own calls are
// quicker than those with packed weights.
bool has_kernel(const Task& task) {
  const TensorRef& input = *tensor_argument(task, kInput);
  const bool transposed = value_argument(task, kTransposed).toBool();
  switch (input.sizes.size()) {
    case 4:
      return !transposed || has_transposed_kernel(task);
    case 5:
      return !transposed && input.dtype == at::kFloat;
    default:
      return false;
  }
}

// Some of oneDNN's kernels crash where a filter sees nothing of a narrow image but what is beyond its edges.
bool sees_its_image(const Task& task) {
  const TensorRef& weight = *tensor_argument(task, kWeight);
  const std::vector<std::int64_t> padding = for_each_dimension(task, kPadding),
                                  dilation = for_each_dimension(task, kDilation);
  for (std::size_t d = 0; d < padding.size(); ++d) {
    if (padding[d] > dilation[d] * (weight.sizes[d + 2] - 1)) return false;
  }
  return true;
}

bool is_convolution(const Task& task, const Uses& uses) {
  if (!is_call_of(task, "aten::convolution") || !has_kernel(task) || !sees_its_image(task)) return false;
  const TensorRef& input = *tensor_argument(task, kInput);
  const TensorRef& weight = *tensor_argument(task, kWeight);
  const TensorRef* bias = tensor_argument(task, kBias);
  return onednn_computes(input.dtype) && weight.dtype == input.dtype && input.numel() > 0 &&
         uses.is_weight(weight) && (!bias || uses.is_weight(*bias));
}

// What `sum` adds to the result of `task`.
std::optional<TensorRef> added_to(const Task& task, const Task& sum) {
  const auto terms = plain_sum(sum);
  if (!terms) return {};
  return terms->a.buffer == first_result(task).buffer ? terms->b : terms->a;
}

// The same tensor channels last, as it will be if its neighbours are convolutions like these.
Operand channels_last(Operand operand) {
  if (auto* ref = std::get_if<TensorRef>(&operand)) {
    std::int64_t stride = ref->sizes[1];
    for (std::size_t d = ref->sizes.size(); d-- > 2;) {
      ref->strides[d] = stride;
      stride *= ref->sizes[d];
    }
    ref->strides[0] = stride;
    ref->strides[1] = 1;
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
  struct Call {
    c10::OperatorHandle op;
    std::vector<Operand> arguments;
  };

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
    if (const auto sum = is_transposed(convolution) ? std::nullopt : next()) {
      if (const auto added = added_to(program_.task(convolution), program_.task(*sum))) {
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

  bool is_transposed(TaskId convolution) const {
    return value_argument(program_.task(convolution), kTransposed).toBool();
  }

  Call call(const Chain& chain) const {
    static const auto plain = find_operator("nimble::mkldnn_convolution"),
                      transposed = find_operator("nimble::mkldnn_transposed_convolution");
    const Task& convolution = program_.task(chain.tasks.front());
    const auto& given = convolution.arguments;
    const Activation& after = chain.activation;
    std::vector<Operand> arguments = {given[kInput], given[kWeight], given[kBias]};
    const bool turned = is_transposed(chain.tasks.front());
    if (!turned) arguments.push_back(chain.other);
    arguments.insert(arguments.end(),
                     {Packed::make(), c10::IValue(for_each_dimension(convolution, kPadding))});
    if (turned) arguments.push_back(c10::IValue(for_each_dimension(convolution, kOutputPadding)));
    arguments.insert(arguments.end(),
                     {c10::IValue(for_each_dimension(convolution, kStride)),
                      c10::IValue(for_each_dimension(convolution, kDilation)), given[kGroups],
                      c10::IValue(after.name), c10::IValue(after.numbers), c10::IValue(after.algorithm)});
    return {turned ? transposed : plain, std::move(arguments)};
  }

  bool is_faster(const Chain& chain) {
    std::vector<Task> before;
    for (const TaskId id : chain.tasks) before.push_back(program_.task(id));
    Chain as_beside_its_like = chain;
    as_beside_its_like.other = channels_last(chain.other);
    Call in_one = call(as_beside_its_like);
    in_one.arguments[0] = channels_last(std::move(in_one.arguments[0]));
    const TaskId last = chain.tasks.back();
    const std::vector<Task> after = {
        edit_.make_task(last, in_one.op, std::move(in_one.arguments), program_.task(last).results)};
    // One that stays behind costs conversions between its layout and that of its neighbours.
    constexpr double kMuchFaster = 0.7;
    if (chooser_.faster_of(edit_.buffers(), std::vector{after, before}, kMuchFaster) != 0) return false;
    chooser_.took(after, before);
    return true;
  }

  void fuse(TaskId id) {
    const Chain chain = chain_from(id);
    if (!is_faster(chain)) return;
    std::string site;
    for (const TaskId task : chain.tasks) {
      site += (site.empty() ? "" : " + ") + task_name(program_, task);
      if (task != chain.tasks.back()) edit_.drop(task);
    }
    const TaskId last = chain.tasks.back();
    Call in_one = call(chain);
    edit_.replace(last, in_one.op, std::move(in_one.arguments), program_.task(last).results);
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
