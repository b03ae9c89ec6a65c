// Pooling by our own kernels, which are quick where the channels of a pixel lie beside each other; ATen's are
// not. They take in the activation behind them, and a maximum one right before it too, if that never
// decreases: then the maximum of its values is its value at the maximum.
//
//   %1, %2 = max_pool2d_with_indices(%0, …)   ──▶   %1 = nimble::max_pool2d(%0, …)
//
//   %1 = avg_pool2d(%0, …)                    ──▶   %2 = nimble::avg_pool2d(%0, …, silu)
//   %2 = silu(%1)
//
//   %1 = relu(%0)                             ──▶   %2 = nimble::max_pool2d(%0, …, relu)
//   %2, %3 = max_pool2d_with_indices(%1, …)
//
// Maxima come without their places, so nobody may look at those.

#include <ATen/ATen.h>

#include <algorithm>

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
  if (!places || !uses.is_unread(places->buffer)) return {};
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

bool never_decreases(std::string_view activation) {
  return activation == "relu" || activation == "relu6" || activation == "sigmoid";
}

// Every window of a maximum has a pixel of the image in it, unless there are gaps in it: without one the
// result is minus infinity, which an activation before the maximum never saw.
bool has_gaps(const Task& max_pool) {
  constexpr std::size_t kDilation = 4;
  const auto dilation = value_argument(max_pool, kDilation).toIntVector();
  return std::ranges::any_of(dilation, [](std::int64_t d) { return d != 1; });
}

class Pool {
 public:
  Pool(const Program& program, const RewriteContext& context)
      : program_(program), uses_(program), edit_(program), chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) replace_if_faster(TaskId{i});
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  void replace_if_faster(TaskId id) {
    auto way = ours(program_.task(id), uses_);
    if (!way || !is_channels_last(std::get<TensorRef>(way->arguments[0]))) return;
    std::vector<TaskId> replaced = {id};  // in order
    if (const auto before = activation_before(id)) {
      replaced.insert(replaced.begin(), *before);
      way->arguments.front() = *tensor_argument(program_.task(*before), 0);
      way->arguments.back() = *fusible_activation(program_.task(*before));
    } else if (const auto behind = activation_behind(id)) {
      replaced.push_back(*behind);
      way->arguments.back() = *fusible_activation(program_.task(*behind));
      way->result.buffer = first_result(program_.task(*behind)).buffer;
    }
    std::vector<std::vector<Task>> candidates(2);
    candidates[0].push_back(edit_.make_task(id, way->op, way->arguments, {way->result}));
    for (const TaskId task : replaced) candidates[1].push_back(program_.task(task));
    if (chooser_.faster_of(edit_.buffers(), candidates) != 0) return;
    chooser_.took(candidates[0], candidates[1]);
    edit_.replace(id, way->op, std::move(way->arguments), {way->result});
    for (const TaskId task : replaced) {
      if (task != id) edit_.drop(task);
    }
    sites_.push_back(task_name(program_, id));
  }

  // One that nobody but this maximum reads, and that may as well come behind it.
  std::optional<TaskId> activation_before(TaskId pool) const {
    const Task& task = program_.task(pool);
    if (!is_call_of(task, "aten::max_pool2d_with_indices") || has_gaps(task)) return {};
    const auto maker = uses_.maker(*tensor_argument(task, 0));
    if (!maker || edit_.touches(*maker) || uses_.only_reader(*maker) != pool) return {};
    const auto activation = fusible_activation(program_.task(*maker));
    if (!activation || !never_decreases(*activation) || !uses_.can_move(*maker, pool)) return {};
    const TensorRef& x = *tensor_argument(program_.task(*maker), 0);
    return is_channels_last(x) && x.dtype == first_result(task).dtype ? maker : std::nullopt;
  }

  // The only one who reads the result.
  std::optional<TaskId> activation_behind(TaskId pool) const {
    const auto reader = uses_.only_reader(pool);
    if (!reader || edit_.touches(*reader) || !fusible_activation(program_.task(*reader))) return {};
    const TensorRef& pooled = first_result(program_.task(pool));
    const TensorRef& made = first_result(program_.task(*reader));
    return made.strides == pooled.strides && made.dtype == pooled.dtype ? reader : std::nullopt;
  }

  const Program& program_;
  Uses uses_;
  Edit edit_;
  Chooser chooser_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) { return Pool(program, context).run(); }

}  // namespace

const Rewrite kPooling{
    .name = "pooling",
    .summary = "pooling, with an activation beside it, by kernels that keep the channels of a pixel together",
    .on_cpu = false,
    .apply = apply};

}  // namespace nimble
