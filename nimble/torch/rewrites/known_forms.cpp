#include "nimble/torch/rewrites/known_forms.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <unordered_set>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/coming_kernels.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/try_alone.h"

namespace nimble {
namespace {

// The same numbers by identity, which is quick and holds wherever a rewrite left them alone, and tensors of
// the same form.
bool looks_like(const Operand& a, const Operand& b) {
  if (a.index() != b.index()) return false;
  if (const auto* value = std::get_if<c10::IValue>(&a)) return value->is(std::get<c10::IValue>(b));
  if (const auto* ref = std::get_if<TensorRef>(&a)) return same_form(*ref, std::get<TensorRef>(b));
  return std::ranges::equal(std::get<TensorRefList>(a).refs, std::get<TensorRefList>(b).refs,
                            [](const auto& one, const auto& other) {
                              return one.has_value() == other.has_value() &&
                                     (!one || same_form(*one, *other));
                            });
}

bool looks_like(const Task& a, const Task& b) {
  const auto alike = [](const Operand& x, const Operand& y) { return looks_like(x, y); };
  return a.op == b.op && std::ranges::equal(a.arguments, b.arguments, alike) &&
         std::ranges::equal(a.results, b.results, alike);
}

// Rewrites leave the numbers of buffers as they are, so a task is found again by what it writes.
using ByResult = std::unordered_map<BufferId, const Task*>;

ByResult by_result(const Program& program) {
  ByResult found;
  for (const Task& task : program.tasks) {
    if (!task.writes.empty()) found.try_emplace(task.writes.front().buffer, &task);
  }
  return found;
}

bool was_there(const Task& task, const ByResult& before) {
  if (task.writes.empty()) return false;
  const auto found = before.find(task.writes.front().buffer);
  return found != before.end() && looks_like(task, *found->second);
}

// What a library made of the weights that it first saw (see packed.h).
bool remembers(const Operand& argument) {
  const auto* value = std::get_if<c10::IValue>(&argument);
  return value && value->isObject();
}

// Some operators look at their values: an assertion, or an index, that finds anything at all ends the use of
// a GPU. These do not.
bool takes_anything(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> known = {"aten::convolution",
                                                             "aten::_convolution",
                                                             "aten::cudnn_convolution_relu",
                                                             "aten::cudnn_batch_norm",
                                                             "aten::native_batch_norm",
                                                             "aten::cudnn_convolution_add_relu",
                                                             "aten::mm",
                                                             "aten::bmm",
                                                             "aten::addmm",
                                                             "aten::_addmm_activation",
                                                             "aten::avg_pool2d",
                                                             "aten::max_pool2d_with_indices",
                                                             "aten::cat",
                                                             "aten::clone",
                                                             "aten::copy_"};
  const std::string& name = op.operator_name().name;
  return name.starts_with("nimble::") || known.contains(name) ||
         (name.starts_with("aten::") && op.hasTag(at::Tag::pointwise));
}

// A recording makes something else of it than a task, or running it on anything at all may fail, or be
// remembered.
bool cannot_be_tried(const Task& task) {
  return !takes_anything(task.op) || only_changes_metadata(task.op) || only_allocates(task.op) ||
         is_host_bookkeeping(task.op) || task.draw || draws_random_numbers(task.op) ||
         std::ranges::any_of(task.arguments, remembers) ||
         std::ranges::any_of(task.reads, [](const TensorRef& ref) {
           return c10::isIntegralType(ref.dtype, /*includeBool=*/false);  // indices of something, perhaps
         });
}

// With every stride, those of dimensions of one element too: rewrites look at them.
std::string kind_of(const Task& task, const Program& program) {
  std::ostringstream kind;
  kind << describe_tasks({&task, 1});
  const auto add = [&](const TensorRef& ref) {
    kind << ' ' << program.buffer(ref.buffer).device << ref.dtype << at::IntArrayRef(ref.sizes)
         << at::IntArrayRef(ref.strides);
  };
  for (const Operand& argument : task.arguments) for_each_ref(argument, add);
  for (const Operand& result : task.results) {
    kind << " ->";
    for_each_ref(result, add);
  }
  return kind.str();
}

}  // namespace

bool KnownForms::is_as_said(const Task& task, const Program& program) {
  const auto [known, first] = tried_.try_emplace(kind_of(task, program), false);
  if (!first || cannot_be_tried(task)) return known->second;
  try {
    try_alone(task, program.buffers);
    known->second = true;
  } catch (const std::exception&) {
    // The recording will show what is wrong with it.
  }
  return known->second;
}

bool KnownForms::are_as_said(const Program& rewritten, const Program& before) {
  const ByResult there = by_result(before);
  std::vector<Task> added;
  std::ranges::copy_if(rewritten.tasks, std::back_inserter(added),
                       [&](const Task& task) { return !was_there(task, there); });
  compile_kernels_ahead(added, rewritten.device()).reset();
  return std::ranges::all_of(added, [&](const Task& task) { return is_as_said(task, rewritten); });
}

}  // namespace nimble
