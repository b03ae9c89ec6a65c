// A batch norm in inference that nothing could take in is a product and a sum, as pointwise as the activation
// behind it: one kernel can do both.
//
//   %1 = native_batch_norm(%0, …)          %3, %4 = nimble::scale_and_shift(gamma, beta, mean, var, …)
//   %2 = relu(%1)                    ──▶   %1 = addcmul(%4, %0, %3)
//                                          %2 = relu(%1)
//
// That kernel is what is measured here, against the batch norm and the activation; it is made later, by
// `fuse_pointwise` or, on a CPU, by `pointwise_blocks`, with whatever else is around. Networks that normalise
// before each convolution (DenseNet, ResNetV2) are full of these.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/batch_norm.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/pointwise_fusion.h"
#include "nimble/torch/rewrites/pointwise_tasks.h"

namespace nimble {
namespace {

using kernels::Expression;
using kernels::Step;

// One number for each channel, so that they broadcast over what has `dimensions` dimensions.
std::tuple<at::Tensor, at::Tensor> scale_and_shift(const std::optional<at::Tensor>& gamma,
                                                   const std::optional<at::Tensor>& beta,
                                                   const at::Tensor& mean, const at::Tensor& variance,
                                                   double eps, std::int64_t dimensions, at::ScalarType type) {
  const auto [scale, shift] = batch_norm::scale_and_shift(gamma, beta, mean, variance, eps);
  std::vector<std::int64_t> shape(static_cast<std::size_t>(dimensions - 1), 1);
  shape[0] = -1;
  return {scale.to(type).view(shape), shift.to(type).view(shape)};
}

class Scale {
 public:
  Scale(const Program& program, const RewriteContext& context)
      : program_(program),
        uses_(program),
        depth_(depths(program)),
        on_gpu_(context.device.is_cuda()),
        kernel_(pointwise_kernel_on(context.device)),
        edit_(program),
        chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      if (batch_norm::is_in_inference(program_.tasks[i], uses_)) open(TaskId{i});
    }
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  // The task that the kernel can do with what the batch norm made, and that waits for nothing longer.
  std::optional<TaskId> activation_behind(TaskId norm) const {
    const auto reader = uses_.only_reader(norm);
    if (!reader) return {};
    const Task& task = program_.task(*reader);
    std::vector<TensorRef> inputs;
    const bool can_be_done =
        makes_one_tensor(program_, uses_, task) && belong_together(program_.task(norm), task) &&
        first_result(task).sizes == first_result(program_.task(norm)).sizes &&
        depth_of(task.reads, uses_, depth_, *reader) <= depth_[norm.index()] &&
        kernel_.can_do(task,
                       step_of(program_, task, [&](const TensorRef& ref) { return input_of(inputs, ref); }));
    return can_be_done ? reader : std::nullopt;
  }

  void open(TaskId id) {
    const Task& norm = program_.task(id);
    const TensorRef& x = *tensor_argument(norm, batch_norm::kInput);
    const TensorRef& y = first_result(norm);
    const auto activation = activation_behind(id);
    const bool rounds = c10::isReducedFloatingType(x.dtype);
    // The kernels for a CPU are of floats.
    const bool has_kernel = x.dtype == at::kFloat || (on_gpu_ && (rounds || x.dtype == at::kDouble));
    if (!activation || !has_kernel || y.dtype != x.dtype || x.sizes.size() < 2) return;

    const at::ScalarType type = rounds ? at::kFloat : x.dtype;  // that ATen computes in
    at::DimVector sizes(x.sizes.size() - 1, 1);
    sizes[0] = x.sizes[1];
    const c10::Device device = program_.buffer(x.buffer).device;
    const TensorRef scale = edit_.new_tensor(sizes, type, device),
                    shift = edit_.new_tensor(sizes, type, device);
    if (!is_faster(id, *activation, scale, shift)) return;

    static const auto numbers = find_operator("nimble::scale_and_shift"),
                      multiply_add = find_operator("aten::addcmul"), cast = find_operator("aten::_to_copy");
    edit_.insert(id, numbers,
                 {norm.arguments[batch_norm::kGamma], norm.arguments[batch_norm::kBeta],
                  norm.arguments[batch_norm::kMean], norm.arguments[batch_norm::kVariance],
                  norm.arguments[batch_norm::kEps], c10::IValue(static_cast<std::int64_t>(x.sizes.size())),
                  c10::IValue(type)},
                 {scale, shift});
    const std::vector<Operand> product = {shift, x, scale, c10::IValue(1)};
    if (rounds) {
      TensorRef wide = edit_.new_tensor(y.sizes, type, device);
      wide.strides = y.strides;
      edit_.insert(id, multiply_add, product, {wide});
      edit_.replace(id, cast, cast_of<Operand>(wide, y.dtype), {y});
    } else {
      edit_.replace(id, multiply_add, product, {y});
    }
    sites_.push_back(task_name(program_, id) + ", " + task_name(program_, *activation));
  }

  // The arguments of aten::_to_copy that changes the type and nothing else.
  template <class Argument>
  static std::vector<Argument> cast_of(const auto& value, at::ScalarType type) {
    const c10::IValue none;
    return {value, c10::IValue(type), none, none, none, c10::IValue(false), none};
  }

  bool is_faster(TaskId norm, TaskId activation, const TensorRef& scale, const TensorRef& shift) {
    const Task& first = program_.task(norm);
    const TensorRef& y = first_result(first);
    std::vector<TensorRef> inputs;
    Expression expression;
    expression.steps.push_back(
        {"addcmul",
         {input_of(inputs, shift), input_of(inputs, *tensor_argument(first, batch_norm::kInput)),
          input_of(inputs, scale), c10::IValue(1)}});
    if (scale.dtype != y.dtype)
      expression.steps.push_back({"_to_copy", cast_of<kernels::Argument>(kernels::step(0), y.dtype)});
    const auto made = kernels::step(expression.steps.size() - 1);
    expression.steps.push_back(step_of(program_, program_.task(activation), [&](const TensorRef& ref) {
      return ref.buffer == y.buffer ? made : input_of(inputs, ref);
    }));
    expression.inputs = inputs.size();
    expression.results = {kernels::step(expression.steps.size() - 1)};

    TensorRefList read;
    for (const TensorRef& ref : inputs) read.refs.emplace_back(ref);
    const TensorRefList written{.refs = {first_result(program_.task(activation))}};
    const std::vector<Task> fused = {edit_.make_task(
        activation, kernel_.op, {read, c10::IValue(to_string(expression))}, {Operand(written)})};
    const std::vector<Task> as_they_are = {first, program_.task(activation)};
    if (chooser_.faster_of(edit_.buffers(), std::vector{fused, as_they_are}) != 0) return false;
    chooser_.took(fused, as_they_are);
    return true;
  }

  const Program& program_;
  Uses uses_;
  std::vector<std::size_t> depth_;
  bool on_gpu_;
  PointwiseKernel kernel_;
  Edit edit_;
  Chooser chooser_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) { return Scale(program, context).run(); }

}  // namespace

const Rewrite kScaleBatchNorm{
    .name = "scale_batch_norm",
    .summary = "batch norms that cannot be folded become a product and a sum, which fuse with what follows",
    .apply = apply};

}  // namespace nimble

TORCH_LIBRARY_FRAGMENT(nimble, library) {
  library.def(
      "scale_and_shift(Tensor? gamma, Tensor? beta, Tensor mean, Tensor variance, float eps, int dimensions, "
      "ScalarType type) -> (Tensor, Tensor)",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(nimble::scale_and_shift)));
}
