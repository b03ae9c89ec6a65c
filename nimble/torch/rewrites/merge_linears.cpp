// Linear layers that read the same input become one with all of their columns; whoever reads one of their
// results reads its columns of the whole.
//
//   %1 = addmm(b1, %0, w1)                 %4, %5 = cat(w1, w2), cat(b1, b2)
//   %2 = addmm(b2, %0, w2)           ──▶   %3 = addmm(%5, %0, %4)
//   %6 = mul(%1, %2)                       %6 = mul(first columns of %3, the others)

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "nimble/core/error.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/activations.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/linear_layer.h"
#include "nimble/torch/rewrites/rename.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

constexpr std::int64_t kVectorBytes = 16;  // what kernels read at once

// One with weights that do not change.
struct Linear : LinearLayer {
  TaskId task;
};

// Rows as they lie in memory, one after the other.
bool lies_row_by_row(const TensorRef& ref) {
  return ref.offset == 0 && ref.strides[1] == 1 && ref.strides[0] == ref.sizes[1];
}

// Operators that go by the strides of what they read. Others may take it for one stretch of memory, as it was
// when they were recorded.
bool reads_columns(const Task& task) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::mm",
      "aten::addmm",
      "aten::bmm",
      "aten::baddbmm",
      "aten::_softmax",
      "aten::native_layer_norm",
      "aten::cat",
      "aten::clone",
      "aten::_to_copy",
      "aten::copy_",
      "aten::sum",
      "aten::mean",
      "aten::_scaled_dot_product_cudnn_attention",
      "aten::_scaled_dot_product_efficient_attention",
      "aten::_scaled_dot_product_flash_attention",
      "aten::_scaled_dot_product_flash_attention_for_cpu",
  };
  return task.op.hasTag(at::Tag::pointwise) || kNames.contains(task.op.operator_name().name);
}

std::optional<Linear> linear_at(const Program& program, const Uses& uses, TaskId id) {
  auto layer = linear_layer(program.task(id));
  if (!layer || (layer->bias && !uses.is_weight(*layer->bias))) return std::nullopt;
  Linear linear{*std::move(layer), id};
  const bool whole = uses.maker(linear.result) == id && uses.is_private(linear.result.buffer);
  const auto element = static_cast<std::int64_t>(c10::elementSize(linear.result.dtype));
  if (!whole || !lies_row_by_row(linear.result) || linear.result.numel() == 0 ||
      linear.columns() * element % kVectorBytes != 0 || !uses.is_weight(linear.weight) ||
      !uses.never_rewritten(linear.input)) {
    return std::nullopt;
  }
  return linear;
}

// What `ref` looks at in a matrix of `width` columns, if these are the columns of one of `new_width` from
// `first` on. None if it looks beyond the end of a row.
std::optional<TensorRef> in_columns(TensorRef ref, std::int64_t width, std::int64_t new_width,
                                    std::int64_t first) {
  std::int64_t last = ref.offset % width;
  for (std::size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.strides[d] % width == 0) {
      ref.strides[d] = ref.strides[d] / width * new_width;
    } else {
      last += (ref.sizes[d] - 1) * ref.strides[d];
    }
  }
  if (ref.numel() == 0 || last >= width) return std::nullopt;
  ref.offset = ref.offset / width * new_width + first + ref.offset % width;
  return ref;
}

class Merge {
 public:
  Merge(const Program& program, const RewriteContext& context)
      : program_(program), context_(context), uses_(program), edit_(program), chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      const auto first = linear_at(program_, uses_, TaskId{i});
      if (!first || edit_.touches(first->task)) continue;
      const std::vector<Linear> siblings = siblings_of(*first);
      if (siblings.size() > 1) merge(siblings);
    }
    Rewritten result{
        .program = std::move(edit_).finish(), .sites = std::move(sites_), .gained = chooser_.gained()};
    for (Task& task : result.program.tasks) change_refs(task, [&](TensorRef& ref) { move(ref); });
    return result;
  }

 private:
  struct Column {
    BufferId whole;
    std::int64_t width, new_width, first;
  };

  std::vector<Linear> siblings_of(const Linear& first) const {
    std::vector<Linear> siblings;
    for (const TaskId reader : uses_.readers(first.input.buffer)) {
      if (reader < first.task || edit_.touches(reader)) continue;
      auto linear = linear_at(program_, uses_, reader);
      if (linear && belongs_to(*linear, first)) siblings.push_back(*std::move(linear));
    }
    return siblings;
  }

  bool belongs_to(const Linear& linear, const Linear& first) const {
    const Task &a = program_.task(linear.task), &b = program_.task(first.task);
    return linear.input == first.input && linear.bias.has_value() == first.bias.has_value() &&
           linear.result.dtype == first.result.dtype && a.part == b.part && a.state == b.state &&
           can_be_there(linear.weight, first.task) &&
           (!linear.bias || can_be_there(*linear.bias, first.task)) && can_be_columns(linear) &&
           !has_activation(linear);
  }

  // What makes a weight from others may come later in the program, as autocast's casts do; then it can be
  // made sooner.
  bool can_be_there(const TensorRef& weight, TaskId task) const {
    if (uses_.is_there(weight, task)) return true;
    const Task& maker = program_.task(uses_.writers(weight.buffer).front());
    return maker.results.size() == 1 && std::holds_alternative<TensorRef>(maker.results[0]) &&
           first_result(maker).offset == 0 && maker.writes == std::vector{first_result(maker)} &&
           std::ranges::all_of(maker.reads, [&](const TensorRef& ref) { return uses_.is_there(ref, task); });
  }

  TensorRef bring(TensorRef weight, TaskId task) {
    if (uses_.is_there(weight, task)) return weight;
    const Task& maker = program_.task(uses_.writers(weight.buffer).front());
    TensorRef made = first_result(maker);
    made.buffer = edit_.new_tensor(made.sizes, made.dtype, program_.buffer(weight.buffer).device).buffer;
    edit_.insert(task, maker.op, maker.arguments, {made});
    weight.buffer = made.buffer;
    return weight;
  }

  // An activation that can become part of the product is worth more.
  bool has_activation(const Linear& linear) const {
    const auto reader = uses_.only_reader(linear.task);
    if (!reader) return false;
    if (!context_.device.is_cuda()) return activation_of(program_.task(*reader)).has_value();
    const auto activation = fusible_activation(program_.task(*reader));
    return linear.bias && (activation == "relu" || activation == "gelu_tanh");
  }

  bool can_be_columns(const Linear& linear) const {
    for (const TaskId reader : uses_.readers(linear.result.buffer)) {
      if (!reads_columns(program_.task(reader))) return false;
      for (const TensorRef& ref : program_.task(reader).reads) {
        if (ref.buffer != linear.result.buffer) continue;
        const std::int64_t width = linear.columns();
        if (ref.dtype != linear.result.dtype || !in_columns(ref, width, width, 0)) return false;
      }
    }
    return true;
  }

  void merge(const std::vector<Linear>& siblings) {
    static const auto cat = find_operator("aten::cat");
    const Linear& first = siblings.front();
    const c10::Device device = program_.buffer(first.result.buffer).device;
    const std::int64_t columns =
        std::accumulate(siblings.begin(), siblings.end(), std::int64_t{0},
                        [](std::int64_t sum, const Linear& linear) { return sum + linear.columns(); });
    const std::int64_t rows = first.result.sizes[0], inputs = first.weight.sizes[0];

    // Weights lie as PyTorch's layers have them: a row for each column of the result.
    const TensorRef rows_of_weights = edit_.new_tensor({columns, inputs}, first.weight.dtype, device);
    TensorRef weight = rows_of_weights;
    weight.sizes = {inputs, columns};
    weight.strides = {1, inputs};
    std::vector<Operand> arguments = program_.task(first.task).arguments;
    arguments[first.bias ? 2 : 1] = weight;
    std::optional<TensorRef> bias;
    if (first.bias) arguments[0] = *(bias = edit_.new_tensor({columns}, first.bias->dtype, device));
    const TensorRef whole = edit_.new_tensor({rows, columns}, first.result.dtype, device);

    const auto& op = program_.task(first.task).op;
    if (!is_faster({edit_.make_task(first.task, op, arguments, {whole})}, siblings)) return;
    TensorRefList weights, biases;
    for (const Linear& linear : siblings) {
      weights.refs.emplace_back(transposed(bring(linear.weight, first.task)));
      if (linear.bias) biases.refs.emplace_back(bring(*linear.bias, first.task));
    }
    edit_.insert(first.task, cat, {weights, c10::IValue(0)}, {rows_of_weights});
    if (bias) edit_.insert(first.task, cat, {biases, c10::IValue(0)}, {*bias});
    edit_.replace(first.task, op, std::move(arguments), {whole});
    std::int64_t begin = 0;
    std::string site;
    for (const Linear& linear : siblings) {
      columns_.emplace(linear.result.buffer, Column{whole.buffer, linear.columns(), columns, begin});
      begin += linear.columns();
      if (linear.task != first.task) edit_.drop(linear.task);
      site += (site.empty() ? "" : " and ") + task_name(program_, linear.task);
    }
    sites_.push_back(std::move(site));
  }

  // On a GPU they would run side by side, which takes as long as the slowest of them, and a wait for another
  // stream; cores are shared.
  bool is_faster(std::vector<Task> merged, const std::vector<Linear>& siblings) {
    constexpr double kWithoutAWait = 0.9, kClearly = 0.97;
    std::vector<Task> apart;
    for (const Linear& linear : siblings) apart.push_back(program_.task(linear.task));
    if (context_.device.is_cuda()) {
      const auto widest = std::ranges::max_element(siblings, {}, &Linear::columns);
      apart = {program_.task(widest->task)};
    }
    const std::vector<std::vector<Task>> ways = {std::move(merged), std::move(apart)};
    const double clearly = context_.device.is_cuda() ? kWithoutAWait : kClearly;
    if (chooser_.faster_of(edit_.buffers(), ways, clearly) != 0) return false;
    chooser_.took(ways[0], ways[1]);
    return true;
  }

  void move(TensorRef& ref) const {
    const auto found = columns_.find(ref.buffer);
    if (found == columns_.end()) return;
    const auto& [whole, width, new_width, first] = found->second;
    auto moved = in_columns(ref, width, new_width, first);
    if (!moved) throw Error("[nimble::rewrite] an operator looks at a linear layer's result across rows");
    ref = *std::move(moved);
    ref.buffer = whole;
  }

  const Program& program_;
  const RewriteContext& context_;
  Uses uses_;
  Edit edit_;
  Chooser chooser_;
  std::unordered_map<BufferId, Column> columns_;  // by the result that it was
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) { return Merge(program, context).run(); }

}  // namespace

const Rewrite kMergeLinears{.name = "merge_linears",
                            .summary = "linear layers on the same input become one, where that is faster",
                            .apply = apply};

}  // namespace nimble
