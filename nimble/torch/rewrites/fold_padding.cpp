// Padding becomes part of the convolution or pooling that reads it: those look beyond the edges of an image
// by themselves, without a copy of it.
//
//   %0 = constant_pad_nd(input0, [1, 1, 2, 2], 0)
//   %1 = convolution(%0, w, …, padding = [0, 0])     ──▶   %1 = convolution(input0, w, …, padding = [2, 1])
//
// They do so by the same amount on both sides, with zeros, or for a maximum with minus infinity.

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/convolution.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

using Numbers = std::vector<std::int64_t>;

// The same amount on both sides of each of the last dimensions.
struct Padding {
  Numbers amounts;   // of the last dimensions, in their order
  at::Scalar value;  // may be complex
};

std::optional<Padding> padding_of(const Task& task) {
  if (!is_call_of(task, "aten::constant_pad_nd") || !task.op.operator_name().overload_name.empty()) return {};
  const Numbers sides = value_argument(task, 1).toIntVector();  // two for each dimension, from the last on
  Padding padding{.amounts = {}, .value = value_argument(task, 2).toScalar()};
  for (std::size_t i = 0; i + 1 < sides.size(); i += 2) {
    if (sides[i] != sides[i + 1] || sides[i] < 0) return {};
    padding.amounts.insert(padding.amounts.begin(), sides[i]);
  }
  return padding;
}

// One number for each of `count` dimensions, where one alone stands for all of them.
Numbers for_each_of(std::size_t count, const c10::IValue& numbers) {
  const Numbers given = numbers.toIntVector();
  return given.size() == 1 ? Numbers(count, given[0]) : given;
}

// What a task pads already and what was padded before, if that is over the same dimensions.
std::optional<Numbers> sum(Numbers own, const Numbers& before) {
  if (before.size() > own.size()) return {};
  std::transform(before.rbegin(), before.rend(), own.rbegin(), own.rbegin(), std::plus());
  return own;
}

bool none_exceeds(const Numbers& numbers, const Numbers& limits) {
  return std::equal(numbers.begin(), numbers.end(), limits.begin(), limits.end(), std::less_equal());
}

std::optional<std::vector<Operand>> padded_convolution(const Task& task, const Padding& padding) {
  using namespace convolution;
  if (!is_call_of(task, "aten::convolution") || value_argument(task, kTransposed).toBool()) return {};
  const TensorRef& weight = *tensor_argument(task, kWeight);
  const std::size_t dimensions = weight.sizes.size() - 2;
  const auto total = sum(for_each_of(dimensions, value_argument(task, kPadding)), padding.amounts);
  if (!padding.value.equal(0) || !total) return {};
  // Beyond that a filter would see nothing of the image, which not every library knows.
  Numbers most = for_each_of(dimensions, value_argument(task, kDilation));
  for (std::size_t d = 0; d < dimensions; ++d) most[d] *= weight.sizes[d + 2] - 1;
  if (!none_exceeds(*total, most)) return {};
  std::vector<Operand> arguments = task.arguments;
  arguments[kPadding] = c10::IValue(*total);
  return arguments;
}

// Poolings may look beyond an edge by half of their window.
std::optional<Numbers> padding_of_pooling(const Task& task, const Padding& padding, bool ceil_mode) {
  constexpr std::size_t kKernelSize = 1, kPadding = 3;
  const auto total = sum(for_each_of(2, value_argument(task, kPadding)), padding.amounts);
  Numbers most = for_each_of(2, value_argument(task, kKernelSize));
  for (std::int64_t& size : most) size /= 2;
  return total && none_exceeds(*total, most) && !ceil_mode ? total : std::nullopt;
}

std::optional<std::vector<Operand>> padded_average(const Task& task, const Padding& padding) {
  constexpr std::size_t kPadding = 3, kCeilMode = 4, kCountIncludePad = 5;
  if (!is_call_of(task, "aten::avg_pool2d") || !padding.value.equal(0)) return {};
  const auto total = padding_of_pooling(task, padding, value_argument(task, kCeilMode).toBool());
  const Numbers own = value_argument(task, kPadding).toIntVector();
  const bool counts_own = value_argument(task, kCountIncludePad).toBool();
  const bool has_own = std::ranges::any_of(own, [](std::int64_t n) { return n != 0; });
  if (!total || (has_own && !counts_own)) return {};
  std::vector<Operand> arguments = task.arguments;
  arguments[kPadding] = c10::IValue(*total);
  arguments[kCountIncludePad] = c10::IValue(true);
  return arguments;
}

// The places of maxima would be others.
std::optional<std::vector<Operand>> padded_maximum(const Task& task, const Padding& padding,
                                                   const Uses& uses) {
  constexpr std::size_t kPadding = 3, kCeilMode = 5;
  if (!is_call_of(task, "aten::max_pool2d_with_indices")) return {};
  if (!padding.value.equal(-std::numeric_limits<double>::infinity())) return {};
  const auto* places = std::get_if<TensorRef>(&task.results[1]);
  if (!places || !uses.is_unread(places->buffer)) return {};
  const auto total = padding_of_pooling(task, padding, value_argument(task, kCeilMode).toBool());
  if (!total) return {};
  std::vector<Operand> arguments = task.arguments;
  arguments[kPadding] = c10::IValue(*total);
  return arguments;
}

// The arguments with which `reader` does to an image what it did to the padded one.
std::optional<std::vector<Operand>> with_padding(const Task& reader, const Padding& padding,
                                                 const Uses& uses) {
  if (auto arguments = padded_convolution(reader, padding)) return arguments;
  if (auto arguments = padded_average(reader, padding)) return arguments;
  return padded_maximum(reader, padding, uses);
}

// A task looks at `ref` once, as the image that it goes over.
bool goes_over(const Task& task, const TensorRef& ref) {
  const auto looks =
      std::ranges::count_if(task.reads, [&](const TensorRef& read) { return read.buffer == ref.buffer; });
  const auto* image = task.arguments.empty() ? nullptr : std::get_if<TensorRef>(&task.arguments[0]);
  return looks == 1 && image && *image == ref;
}

Rewritten apply(Program program, const RewriteContext&) {
  const Uses uses(program);
  Edit edit(program);
  Rewritten result{.program = {}};
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const TaskId id{i};
    const auto padding = padding_of(program.task(id));
    if (!padding) continue;
    const TensorRef& padded = first_result(program.task(id));
    if (uses.maker(padded) != id || !uses.is_private(padded.buffer)) continue;
    const auto readers = uses.readers(padded.buffer);
    std::vector<std::vector<Operand>> arguments;  // by reader
    for (const TaskId reader : readers) {
      if (!goes_over(program.task(reader), padded) || !uses.can_move(id, reader)) break;
      auto found = with_padding(program.task(reader), *padding, uses);
      if (!found) break;
      found->front() = program.task(id).arguments[0];
      arguments.push_back(*std::move(found));
    }
    if (readers.empty() || arguments.size() != readers.size()) continue;
    for (std::size_t r = 0; r < readers.size(); ++r) {
      const Task& reader = program.task(readers[r]);
      edit.replace(readers[r], reader.op, std::move(arguments[r]), reader.results);
    }
    edit.drop(id);
    result.sites.push_back(task_name(program, id));
  }
  result.program = std::move(edit).finish();
  return result;
}

}  // namespace

const Rewrite kFoldPadding{.name = "fold_padding",
                           .summary = "padding becomes part of the convolution or pooling behind it",
                           .apply = apply};

}  // namespace nimble
