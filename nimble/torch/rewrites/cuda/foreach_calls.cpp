#include "nimble/torch/rewrites/cuda/foreach_calls.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "nimble/kernels/element_source.h"

namespace nimble {
namespace {

bool is_floating(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

std::optional<RefList> list_of(const Operand& operand) {
  const auto* list = std::get_if<TensorRefList>(&operand);
  if (!list || list->refs.empty()) return {};
  RefList refs;
  for (const auto& ref : list->refs) {
    if (!ref) return {};
    refs.push_back(*ref);
    refs.back().requires_grad = false;  // which makes no difference to a kernel
  }
  return refs;
}

// The one number that a list of them consists of.
std::optional<c10::IValue> only_number(const c10::IValue& list) {
  const auto numbers = list.toListRef();
  const auto is_first = [&](const c10::IValue& number) {
    return number.isScalar() && !number.isComplexDouble() && number.tagKind() == numbers[0].tagKind() &&
           number == numbers[0];
  };
  if (numbers.empty() || !std::all_of(numbers.begin(), numbers.end(), is_first)) return {};
  return numbers[0];
}

// Whether a kernel can go over `list` beside `model`, or read a number of it for each tensor there.
bool fits(const Program& program, const RefList& list, const RefList& model) {
  if (list.size() != model.size()) return false;
  const c10::Device device = program.buffer(model[0].buffer).device;
  const bool is_plain = std::ranges::all_of(list, [&](const TensorRef& ref) {
    return is_floating(ref.dtype) && ref.dtype == list[0].dtype && !ref.conjugate && !ref.negative &&
           program.buffer(ref.buffer).device == device && without_memory(ref).is_non_overlapping_and_dense();
  });
  return is_plain && (are_alike(list, model) ||
                      std::ranges::all_of(list, [](const TensorRef& ref) { return ref.sizes.empty(); }));
}

// "_foreach_add.List" of aten::_foreach_add_.List; empty for other operators.
std::string function_of_foreach(const c10::OperatorName& op, bool in_place) {
  constexpr std::string_view kNamespace = "aten::";
  if (!op.name.starts_with("aten::_foreach_")) return "";
  std::string name = op.name.substr(kNamespace.size());
  if (in_place) name.pop_back();
  // One number is one number, whichever way it comes. But a list of them divides, where one alone is
  // multiplied by.
  if (name == "_foreach_div" && op.overload_name == "ScalarList") return "";
  const std::string overload = op.overload_name == "ScalarList" ? "Scalar"
                               : op.overload_name == "Tensor"   ? "List"
                                                                : op.overload_name;
  return overload.empty() ? name : name + "." + overload;
}

bool has_kernel(const ForeachCall& call) {
  kernels::Step step{call.function, {}};
  for (const auto& argument : call.arguments) {
    const auto* value = std::get_if<c10::IValue>(&argument);
    step.arguments.push_back(value ? kernels::Argument(*value) : kernels::Argument(kernels::input(0)));
  }
  return kernels::has_kernel(step);
}

}  // namespace

bool are_alike(const RefList& a, const RefList& b) {
  return std::ranges::equal(a, b, [](const TensorRef& x, const TensorRef& y) {
    return x.sizes == y.sizes && x.strides == y.strides && x.dtype == y.dtype;
  });
}

std::optional<ForeachCall> foreach_call(const Program& program, const Task& task) {
  const c10::OperatorName& name = task.op.operator_name();
  ForeachCall call{.in_place = name.name.ends_with('_')};
  call.function = function_of_foreach(name, call.in_place);
  if (call.function.empty() || task.draw || task.arguments.empty()) return {};
  const auto first = list_of(task.arguments[0]);
  if (!first) return {};
  for (const Operand& operand : task.arguments) {
    if (auto list = list_of(operand)) {
      call.arguments.emplace_back(*std::move(list));
    } else if (const auto* ref = std::get_if<TensorRef>(&operand)) {
      call.arguments.emplace_back(RefList(first->size(), *ref));
      for (TensorRef& same : std::get<RefList>(call.arguments.back())) same.requires_grad = false;
    } else if (const auto* value = std::get_if<c10::IValue>(&operand); value && !value->isList()) {
      call.arguments.emplace_back(*value);
    } else if (const auto number = value ? only_number(*value) : std::nullopt) {
      call.arguments.emplace_back(*number);
    } else {
      return {};
    }
  }
  if (!has_kernel(call)) return {};
  if (call.in_place) {
    call.result = *first;
  } else {
    const auto made = task.results.size() == 1 ? list_of(task.results[0]) : std::nullopt;
    if (!made || !are_alike(*made, *first)) return {};
    call.result = *made;
  }
  const auto lists = lists_of(call);
  const bool all_fit =
      std::ranges::all_of(lists, [&](const RefList* list) { return fits(program, *list, *first); });
  return all_fit ? std::optional(std::move(call)) : std::nullopt;
}

std::vector<const RefList*> lists_of(const ForeachCall& call) {
  std::vector<const RefList*> lists;
  for (const auto& argument : call.arguments) {
    if (const auto* list = std::get_if<RefList>(&argument)) lists.push_back(list);
  }
  lists.push_back(&call.result);
  return lists;
}

}  // namespace nimble
