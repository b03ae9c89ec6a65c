#include "nimble/torch/rewrites/cuda/slices.h"

#include <algorithm>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

bool is_ours(const Task& task) { return task.op.operator_name().name.starts_with("nimble::"); }

bool takes_list(const c10::OperatorHandle& op, std::size_t argument) {
  return op.schema().arguments()[argument].type()->kind() == c10::TypeKind::ListType;
}

// Dimensions of more than one element, from the slowest to the fastest in memory.
std::vector<std::size_t> by_stride(const TensorRef& ref) {
  std::vector<std::size_t> dimensions;
  for (std::size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.sizes[d] != 1) dimensions.push_back(d);
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [&](std::size_t a, std::size_t b) { return ref.strides[a] > ref.strides[b]; });
  return dimensions;
}

}  // namespace

std::optional<std::vector<TensorRef>> slices_for(const Task& cat, const TensorRef& whole) {
  const bool stacks = is_call_of(cat, "aten::stack");
  const auto rank = static_cast<std::int64_t>(whole.sizes.size());
  const std::int64_t given = value_argument(cat, 1).toInt();
  const auto along = static_cast<std::size_t>(given < 0 ? given + rank : given);
  std::int64_t first = 0;
  std::vector<TensorRef> slices;
  for (const auto& part : std::get<TensorRefList>(cat.arguments[0]).refs) {
    TensorRef slice = whole;
    slice.offset += first * whole.strides[along];
    if (stacks) {
      slice.sizes.erase(slice.sizes.begin() + static_cast<std::ptrdiff_t>(along));
      slice.strides.erase(slice.strides.begin() + static_cast<std::ptrdiff_t>(along));
      first += 1;
    } else if (part && part->sizes.size() == whole.sizes.size()) {
      slice.sizes[along] = part->sizes[along];
      first += part->sizes[along];
    }
    if (!part || part->sizes != slice.sizes || part->dtype != whole.dtype || part->numel() == 0) return {};
    slices.push_back(std::move(slice));
  }
  return slices;
}

bool is_rows(const TensorRef& ref) {
  const auto dimensions = by_stride(ref);
  if (dimensions.empty()) return true;
  std::size_t pieces = 1;  // dimensions that are left once those that go on evenly are made one
  for (std::size_t i = 0; i + 1 < dimensions.size(); ++i) {
    const std::size_t slow = dimensions[i], fast = dimensions[i + 1];
    pieces += ref.strides[slow] == ref.strides[fast] * ref.sizes[fast] ? 0 : 1;
  }
  return ref.strides[dimensions.back()] == 1 && pieces <= 2;
}

bool same_order(const TensorRef& a, const TensorRef& b) { return by_stride(a) == by_stride(b); }

std::optional<std::vector<TensorRef>> made_by(const Task& task) {
  if (task.results.size() != 1) return {};
  std::vector<TensorRef> made;
  for_each_ref(task.results[0], [&](const TensorRef& result) { made.push_back(result); });
  return !made.empty() && made == task.writes ? std::optional(std::move(made)) : std::nullopt;
}

std::optional<c10::OperatorHandle> out_form(const Task& task, c10::Device device) {
  const auto& [name, overload] = task.op.operator_name();
  if (!overload.empty() && overload != "Tensor") return {};
  const auto found = c10::Dispatcher::singleton().findSchema({name, "out"});
  if (!found) return {};
  const std::size_t out = task.arguments.size();
  const auto& arguments = found->schema().arguments();
  if (arguments.size() != out + 1 || !is_written(*found, out)) return {};
  if (!takes_list(*found, out) && task.writes.size() != 1) return {};
  if (is_ours(task)) return found;
  // ATen's pointwise kernels step through any layout, if they are kernels and not a call and a copy.
  const auto key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  const bool has_kernel = task.op.hasTag(at::Tag::pointwise) && found->hasKernelForDispatchKey(key);
  return has_kernel ? found : std::nullopt;
}

// An operator that takes a list of places returns nothing.
Task task_writing_to(const TensorRefList& places, TaskId writer, const c10::OperatorHandle& form,
                     std::vector<Operand> arguments, const Edit& edit) {
  if (form.schema().returns().empty()) {
    arguments.emplace_back(places);
    return edit.make_task(writer, form, std::move(arguments), {});
  }
  const TensorRef& place = *places.refs.front();
  arguments.emplace_back(place);
  return edit.make_task(writer, form, std::move(arguments), {place});
}

bool reads_slices(const Task& task) {
  static constexpr const char* kOurs[] = {"nimble::pointwise",           "nimble::depthwise_convolution",
                                          "nimble::max_pool2d",          "nimble::avg_pool2d",
                                          "nimble::adaptive_avg_pool2d", "nimble::pointwise_convolution",
                                          "nimble::matrix_convolution",  "nimble::matrix_convolutions"};
  return task.op.hasTag(at::Tag::pointwise) ||
         std::any_of(std::begin(kOurs), std::end(kOurs),
                     [&](const char* name) { return is_call_of(task, name); });
}

std::optional<std::size_t> argument_named(const c10::OperatorHandle& op, std::string_view name) {
  return op.schema().argumentIndexWithName(name);
}

}  // namespace nimble
