// Attention that PyTorch's layers call as one operator becomes what it is made of, so that other rewrites
// find the linear layers in it.
//
//                                                                    %1 = addmm(b1, %0, w1)
//   %3 = _native_multi_head_attention(%0, %0, %0, w1, b1, w2, b2) ─▶ %2 = scaled_dot_product_attention(of %1)
//                                                                    %3 = addmm(b2, %2, w2)

#include <ATen/ATen.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

namespace argument {
enum Argument {
  kQuery,
  kKey,
  kValue,
  kWidth,
  kHeads,
  kWeight,
  kBias,
  kLastWeight,
  kLastBias,
  kMask,
  kNeedsWeights
};
}

// Of sentences to themselves, without a mask, and nobody wants to know who looked at whom. In float32: of
// halves cuBLAS's own products are the fastest, and one call has less to launch than three.
struct SelfAttention {
  TensorRef x, weight, bias, last_weight, last_bias, result;
  std::int64_t sentences, words, width, heads;
};

std::optional<SelfAttention> self_attention(const Task& task, const Uses& uses) {
  using namespace argument;
  if (!is_call_of(task, "aten::_native_multi_head_attention")) return {};
  const auto* mask = std::get_if<c10::IValue>(&task.arguments[kMask]);
  if (!mask || !mask->isNone() || value_argument(task, kNeedsWeights).toBool()) return {};
  for (const Argument n : {kQuery, kKey, kValue, kWeight, kBias, kLastWeight, kLastBias}) {
    if (!tensor_argument(task, n)) return {};
  }
  const auto tensor = [&](std::size_t n) { return *tensor_argument(task, n); };
  const TensorRef x = tensor(kQuery);
  SelfAttention found{.x = x,
                      .weight = tensor(kWeight),
                      .bias = tensor(kBias),
                      .last_weight = tensor(kLastWeight),
                      .last_bias = tensor(kLastBias),
                      .result = first_result(task),
                      .sentences = x.sizes[0],
                      .words = x.sizes[1],
                      .width = x.sizes[2],
                      .heads = value_argument(task, kHeads).toInt()};
  const bool to_itself = tensor(kKey) == x && tensor(kValue) == x;
  const bool plain = x.dtype == at::kFloat && may_use_tensor_cores(x.dtype) && is_contiguous(x) &&
                     is_contiguous(found.result) && is_contiguous(found.weight) &&
                     is_contiguous(found.last_weight) && uses.never_rewritten(x) && x.numel() > 0;
  return to_itself && plain ? std::optional(std::move(found)) : std::nullopt;
}

// The numbers of `ref` as rows of a matrix, one after the other.
TensorRef as_rows(TensorRef ref, std::int64_t columns) {
  ref.sizes = {ref.numel() / columns, columns};
  ref.strides = {columns, 1};
  return ref;
}

// Queries, keys or values of each head: `number` says which third of a row of `projected`.
TensorRef heads_of(const SelfAttention& a, TensorRef projected, std::int64_t number) {
  const std::int64_t of_head = a.width / a.heads, row = 3 * a.width;
  projected.sizes = {a.sentences, a.heads, a.words, of_head};
  projected.strides = {a.words * row, of_head, row, 1};
  projected.offset = number * a.width;
  return projected;
}

std::vector<Task> parts_of(const SelfAttention& a, TaskId id, Edit& edit, c10::Device device) {
  static const auto addmm = find_operator("aten::addmm"),
                    attend = find_operator("aten::scaled_dot_product_attention");
  const auto linear = [&](const TensorRef& bias, const TensorRef& rows, const TensorRef& weight,
                          const TensorRef& result) {
    std::vector<Operand> arguments = {bias, rows, transposed(weight)};
    add_defaults(addmm, arguments);
    return edit.make_task(id, addmm, std::move(arguments), {result});
  };
  const std::int64_t rows = a.sentences * a.words;
  const TensorRef projected = edit.new_tensor({rows, 3 * a.width}, a.x.dtype, device);
  // Its kernels leave the heads of a word beside each other.
  TensorRef attended = edit.new_tensor({rows, a.width}, a.x.dtype, device);
  TensorRef by_head = attended;
  by_head.sizes = {a.sentences, a.heads, a.words, a.width / a.heads};
  by_head.strides = {a.words * a.width, a.width / a.heads, a.width, 1};
  std::vector<Operand> of_heads = {heads_of(a, projected, 0), heads_of(a, projected, 1),
                                   heads_of(a, projected, 2)};
  add_defaults(attend, of_heads);
  return {linear(a.bias, as_rows(a.x, a.width), a.weight, projected),
          edit.make_task(id, attend, std::move(of_heads), {by_head}),
          linear(a.last_bias, attended, a.last_weight, as_rows(a.result, a.width))};
}

Rewritten apply(Program program, const RewriteContext& context) {
  const Uses uses(program);
  Edit edit(program);
  Chooser chooser(context);
  Rewritten result{.program = {}};
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId id{i};
    const auto attention = self_attention(program.task(id), uses);
    if (!attention) continue;
    const auto parts = parts_of(*attention, id, edit, program.buffer(attention->result.buffer).device);
    // What the other rewrites gain is not known yet.
    constexpr double kClearly = 0.9;
    const std::vector<std::vector<Task>> ways = {parts, {program.task(id)}};
    if (chooser.faster_of(edit.buffers(), ways, kClearly) != 0) continue;
    chooser.took(ways[0], ways[1]);
    for (std::size_t p = 0; p + 1 < parts.size(); ++p) {
      edit.insert(id, parts[p].op, parts[p].arguments, parts[p].results);
    }
    edit.replace(id, parts.back().op, parts.back().arguments, parts.back().results);
    result.sites.push_back(task_name(program, id));
  }
  result.program = std::move(edit).finish();
  result.gained = chooser.gained();
  return result;
}

}  // namespace

const Rewrite kOpenAttention{.name = "open_attention",
                             .summary = "attention that is one operator becomes linear layers and its core",
                             .on_cpu = false,
                             .apply = apply};

}  // namespace nimble
