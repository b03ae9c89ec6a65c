// A batch norm behind a concatenation of convolutions becomes one for each, which can then be folded into its
// weights.
//
//   %2 = cat(%0, %1)                       %4 = native_batch_norm(%0, first channels of gamma, beta, …)
//   %3 = native_batch_norm(%2, …)    ──▶   %5 = native_batch_norm(%1, the other channels)
//                                          %3 = cat(%4, %5)

#include <ATen/ATen.h>

#include <algorithm>

#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/batch_norm.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/uses.h"
#include "nimble/torch/rewrites/weights_first.h"

namespace nimble {
namespace {

using namespace batch_norm;

// Its scale and shift can be cut by channels, and all of its results can be made for each piece.
bool can_be_cut(const Task& task) {
  return tensor_argument(task, kGamma) && tensor_argument(task, kBeta) &&
         std::all_of(task.results.begin(), task.results.end(),
                     [](const Operand& result) { return std::holds_alternative<TensorRef>(result); });
}

// A concatenation of channels, of nothing but convolutions that nobody else looks at.
bool joins_convolutions(const Program& program, const Uses& uses, TaskId id) {
  const Task& task = program.task(id);
  if (!is_call_of(task, "aten::cat") || value_argument(task, 1).toInt() != 1) return false;
  for (const auto& part : std::get<TensorRefList>(task.arguments[0]).refs) {
    const auto maker = uses.maker(*part);
    if (!maker || uses.only_reader(*maker) != id) return false;
    if (!is_call_of(program.task(*maker), "aten::convolution")) return false;
    if (part->sizes.size() != 4 || part->dtype != first_result(task).dtype) return false;
  }
  return true;
}

// Statistics, which nobody reads in inference: of most types empty, of some one number for each channel.
TensorRef unread_result_of_part(const Task& norm, std::size_t number, std::int64_t channels, Edit& edit,
                                c10::Device device) {
  const TensorRef& of_whole = std::get<TensorRef>(norm.results[number]);
  at::DimVector sizes = of_whole.sizes;
  if (sizes == tensor_argument(norm, kMean)->sizes) sizes = {channels};
  return edit.new_tensor(sizes, of_whole.dtype, device);
}

Rewritten apply(Program unordered, const RewriteContext&) {
  const Program program = with_weights_first(std::move(unordered));
  const Uses uses(program);
  Edit edit(program);
  Rewritten result{.program = {}};
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId id{i};
    const Task& norm = program.task(id);
    if (!is_in_inference(norm, uses) || !can_be_cut(norm)) continue;
    const auto cat = uses.maker(*tensor_argument(norm, kInput));
    if (!cat || uses.only_reader(*cat) != id || !joins_convolutions(program, uses, *cat)) continue;
    TensorRefList parts = std::get<TensorRefList>(program.task(*cat).arguments[0]);
    std::int64_t first = 0;
    for (auto& part : parts.refs) {
      const auto device = program.buffer(part->buffer).device;
      std::vector<Operand> arguments = norm.arguments;
      arguments[kInput] = *part;
      for (const std::size_t a : {kGamma, kBeta, kMean, kVariance}) {
        TensorRef channels = *tensor_argument(norm, a);
        channels.offset += first * channels.strides[0];
        channels.sizes[0] = part->sizes[1];
        arguments[a] = channels;
      }
      const TensorRef made = edit.new_tensor(part->sizes, part->dtype, device);
      std::vector<Operand> results = {made};
      for (std::size_t r = 1; r < norm.results.size(); ++r) {
        results.emplace_back(unread_result_of_part(norm, r, part->sizes[1], edit, device));
      }
      edit.insert(*cat, norm.op, std::move(arguments), std::move(results));
      first += part->sizes[1];
      part = made;
    }
    edit.replace(*cat, program.task(*cat).op, {parts, program.task(*cat).arguments[1]}, {norm.results[0]});
    edit.drop(id);
    result.sites.push_back(task_name(program, id) + " before " + task_name(program, *cat));
  }
  result.program = std::move(edit).finish();
  return result;
}

}  // namespace

const Rewrite kNormThroughCat{
    .name = "norm_through_cat",
    .summary = "a batch norm behind a concatenation moves to the parts, where it can fold",
    .apply = apply};

}  // namespace nimble
