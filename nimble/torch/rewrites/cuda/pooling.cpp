// Pooling by our own kernels, which are quick where the channels of a pixel lie beside each other; ATen's are
// not.
//
//   %1, %2 = max_pool2d_with_indices(%0, …)   ──▶   %1 = nimble::max_pool2d(%0, …)
//
// Maxima come without their places, so nobody may look at those.

#include <ATen/ATen.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

struct Ours {
  c10::OperatorHandle op;
  std::vector<Operand> arguments;
  TensorRef result;
};

std::optional<Ours> max_pool(const Task& task, const Uses& uses) {
  static const auto op = find_operator("nimble::max_pool2d");
  if (!is_call_of(task, "aten::max_pool2d_with_indices")) return {};
  const auto* places = std::get_if<TensorRef>(&task.results[1]);
  if (!places || !uses.readers(places->buffer).empty() || !uses.is_private(places->buffer)) return {};
  std::vector<Operand> arguments = task.arguments;
  arguments.emplace_back(c10::IValue("none"));
  return Ours{op, std::move(arguments), first_result(task)};
}

std::optional<Ours> avg_pool(const Task& task) {
  static const auto op = find_operator("nimble::avg_pool2d");
  if (!is_call_of(task, "aten::avg_pool2d")) return {};
  std::vector<Operand> arguments = task.arguments;
  arguments.emplace_back(c10::IValue("none"));
  return Ours{op, std::move(arguments), first_result(task)};
}

std::optional<Ours> adaptive_avg_pool(const Task& task) {
  static const auto op = find_operator("nimble::adaptive_avg_pool2d");
  if (!is_call_of(task, "aten::_adaptive_avg_pool2d")) return {};
  return Ours{op, {task.arguments[0], task.arguments[1], c10::IValue("none")}, first_result(task)};
}

// The mean over height and width, which is also how ATen does adaptive pooling to one pixel.
std::optional<Ours> image_mean(const Task& task) {
  static const auto op = find_operator("nimble::adaptive_avg_pool2d");
  if (!is_call_of(task, "aten::mean") || task.op.operator_name().overload_name != "dim") return {};
  const TensorRef* x = tensor_argument(task, 0);
  if (!x || x->sizes.size() != 4 || !value_argument(task, 1).isIntList() ||
      !value_argument(task, 3).isNone()) {
    return {};
  }
  auto over = value_argument(task, 1).toIntVector();
  for (std::int64_t& dimension : over) dimension = dimension < 0 ? dimension + 4 : dimension;
  std::sort(over.begin(), over.end());
  if (over != std::vector<std::int64_t>{2, 3}) return {};
  TensorRef result = first_result(task);  // [images, channels], perhaps with two more of size one
  result.sizes = {x->sizes[0], x->sizes[1], 1, 1};
  result.strides = {result.strides[0], result.strides[1], 1, 1};
  return Ours{op, {*x, c10::IValue(std::vector<std::int64_t>{1, 1}), c10::IValue("none")}, std::move(result)};
}

std::optional<Ours> ours(const Task& task, const Uses& uses) {
  if (auto found = max_pool(task, uses)) return found;
  if (auto found = avg_pool(task)) return found;
  if (auto found = adaptive_avg_pool(task)) return found;
  return image_mean(task);
}

Rewritten apply(Program program, const RewriteContext& context) {
  const Uses uses(program);
  Edit edit(program);
  Chooser chooser(context);
  Rewritten result{.program = {}};
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId id{i};
    const Task& task = program.task(id);
    auto way = ours(task, uses);
    if (!way || !is_channels_last(std::get<TensorRef>(way->arguments[0]))) continue;
    const Task made = edit.make_task(id, way->op, way->arguments, {way->result});
    const std::vector<std::vector<Task>> candidates = {{made}, {task}};
    if (chooser.faster_of(edit.buffers(), candidates) != 0) continue;
    edit.replace(id, way->op, std::move(way->arguments), {way->result});
    result.sites.push_back(task_name(program, id));
  }
  result.program = std::move(edit).finish();
  return result;
}

}  // namespace

const Rewrite kPooling{.name = "pooling",
                       .summary = "pooling by kernels that keep the channels of a pixel together",
                       .on_cpu = false,
                       .apply = apply};

}  // namespace nimble
