#include "nimble/torch/operator_facts.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace nimble {
namespace {

using Names = std::unordered_set<std::string_view>;

const std::string& name_of(const c10::OperatorHandle& op) { return op.operator_name().name; }

bool is_somebodys_own(const c10::OperatorHandle& op) {
  const std::string& name = name_of(op);
  return !name.starts_with("aten::") && !name.starts_with("nimble::");
}

bool has_boolean_index(c10::ArrayRef<c10::IValue> arguments) {
  for (const auto& index : arguments[1].toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) continue;
    const auto type = index.toTensor().scalar_type();
    if (type == at::kBool || type == at::kByte) return true;
  }
  return false;
}

}  // namespace

bool only_changes_metadata(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::inplace_view) || name_of(op) == "aten::set_";
}

bool only_allocates(const c10::OperatorHandle& op) {
  static const Names names = {"aten::empty",     "aten::empty_strided",     "aten::empty_like",
                              "aten::new_empty", "aten::new_empty_strided", "aten::empty_permuted"};
  return names.contains(name_of(op));
}

bool is_host_bookkeeping(const c10::OperatorHandle& op) {
  static const Names names = {"profiler::_record_function_enter",
                              "profiler::_record_function_enter_new",
                              "profiler::_record_function_exit",
                              "aten::can_cast",
                              "aten::_fused_sdp_choice",
                              "aten::is_same_size",
                              "aten::_has_compatible_shallow_copy_type",
                              "aten::is_pinned",
                              "aten::_debug_has_internal_overlap",
                              "aten::_has_same_storage_numel",
                              "aten::result_type",
                              "aten::is_set_to"};
  return names.contains(name_of(op));
}

bool draws_random_numbers(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded);
}

bool lifts_a_constant(const c10::OperatorHandle& op) {
  return name_of(op) == "aten::lift_fresh" || name_of(op) == "aten::lift";
}

bool writes_argument_unannounced(const c10::OperatorHandle& op, std::size_t argument) {
  // Kept complete by the operator-sample test that compares every argument's bytes before and after each
  // call.
  static const std::unordered_map<std::string_view, std::unordered_set<std::size_t>> written = {
      {"aten::native_batch_norm", {3, 4}},
      {"aten::cudnn_batch_norm", {3, 4}},
      {"aten::miopen_batch_norm", {3, 4}},
      {"aten::mkldnn_rnn_layer_backward", {22}},
  };
  const auto found = written.find(name_of(op));
  return found != written.end() && found->second.contains(argument);
}

bool is_written(const c10::OperatorHandle& op, std::size_t argument) {
  const auto* alias = op.schema().arguments()[argument].alias_info();
  return (alias && alias->isWrite()) || writes_argument_unannounced(op, argument);
}

// Batch norms write their statistics only while they train.
bool is_written(const c10::OperatorHandle& op, std::size_t argument, c10::ArrayRef<c10::IValue> arguments) {
  constexpr std::size_t kTraining = 5;
  const bool rests = name_of(op).ends_with("batch_norm") && writes_argument_unannounced(op, argument) &&
                     arguments[kTraining].isBool() && !arguments[kTraining].toBool();
  return is_written(op, argument) && !rests;
}

bool only_computes(const c10::OperatorHandle& op) {
  return !is_somebodys_own(op) && name_of(op).find("assert") == std::string::npos;
}

bool writes_to_what_it_is_given(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(), &c10::Argument::is_out);
}

bool may_need_its_layout(const c10::OperatorHandle& op) {
  // On a GPU it refuses anything but contiguous images; torch.group_norm makes them so.
  static const Names names = {"aten::native_group_norm", "aten::native_group_norm_backward"};
  // Takes it for granted that its result lies as its input does.
  const bool is_careless = name_of(op) == "aten::native_batch_norm" && writes_to_what_it_is_given(op);
  return names.contains(name_of(op)) || is_careless || is_somebodys_own(op);
}

c10::OperatorHandle find_operator(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

std::optional<Refusal> talks_to_other_processes(const c10::OperatorHandle& op) {
  static const std::array names = {
      "c10d::", "c10d_functional::", "_c10d_functional::", "_c10d_functional_autograd::"};
  const std::string& name = name_of(op);
  if (std::ranges::none_of(names, [&](const char* of) { return name.starts_with(of); })) return std::nullopt;
  return Refusal{name, "it exchanges data with other processes, which a replay does not wait for",
                 "Leave communication outside the compiled function", ""};
}

std::optional<Refusal> depends_on_data(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const std::string& name = name_of(op);
  if (op.hasTag(at::Tag::data_dependent_output)) {
    return Refusal{
        name,
        "it turns tensor data into a number for the host (as .item(), bool(), float(), int() and `if "
        "tensor:` do)",
        "Keep the value in a tensor (torch.where, multiplication by a mask), or leave this part outside "
        "the compiled function",
        ""};
  }
  if (op.hasTag(at::Tag::dynamic_output_shape)) {
    if (name == "aten::index" && !has_boolean_index(arguments)) return std::nullopt;
    if (name == "aten::index") {
      return Refusal{name, "indexing with a boolean mask gives a result whose shape depends on the data",
                     "Use torch.where(mask, x, other), masked_fill, or multiply by the mask", ""};
    }
    return Refusal{
        name, "the shape of its result depends on the data",
        "Use an operator with a fixed shape (torch.where with three arguments, masked_fill, topk), or leave "
        "this part outside the compiled function",
        ""};
  }
  for (const auto& result : op.schema().returns()) {
    const auto kind = result.type()->kind();
    const bool is_tensor =
        kind == c10::TypeKind::TensorType ||
        (kind == c10::TypeKind::ListType &&
         result.type()->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType) ||
        (kind == c10::TypeKind::OptionalType &&
         result.type()->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::TensorType);
    // A SymInt is a size: fused attention returns the longest sequence it was given.
    const bool is_size = result.real_type()->kind() == c10::TypeKind::SymIntType;
    if (!is_tensor && !is_size) {
      return Refusal{name, "it returns a " + result.type()->str() + " to the host, which may depend on data",
                     "Compute it outside the compiled function and pass it in", ""};
    }
  }
  return std::nullopt;
}

}  // namespace nimble
