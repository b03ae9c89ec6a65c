#include "nimble/torch/unfilled_memory.h"

#include <string_view>
#include <unordered_set>

#include "nimble/torch/operator_facts.h"

namespace nimble {
namespace {

// Whether a call that takes memory as its first argument asks for no value there: it looks at the form of the
// tensor only, or gives a copy of it with other values in place of those.
bool asks_for_form_only(const c10::OperatorName& op) {
  static const std::unordered_set<std::string_view> overwrite = {"aten::fill",
                                                                 "aten::zero",
                                                                 "aten::copy",
                                                                 "aten::uniform",
                                                                 "aten::random",
                                                                 "aten::exponential",
                                                                 "aten::geometric",
                                                                 "aten::normal_functional",
                                                                 "aten::cauchy",
                                                                 "aten::log_normal",
                                                                 "aten::scatter",
                                                                 "aten::index_copy",
                                                                 "aten::index_put",
                                                                 "aten::slice_scatter",
                                                                 "aten::select_scatter",
                                                                 "aten::diagonal_scatter",
                                                                 "aten::as_strided_scatter"};
  const std::string_view name = op.name;
  // bernoulli(x) takes probabilities from x, bernoulli(x, p) only its shape.
  const bool has_probability = name == "aten::bernoulli" && !op.overload_name.empty();
  return name.ends_with("_like") || name.starts_with("aten::new_") || overwrite.contains(name) ||
         has_probability;
}

// addmm and its like (beta * x + alpha * a @ b) do not look at what counts nothing.
bool counts_nothing(const Task& task) {
  const auto& schema = task.op.schema();
  const auto beta = schema.argumentIndexWithName("beta");
  if (!beta || !schema.argumentIndexWithName("alpha")) return false;
  const auto& factor = std::get<c10::IValue>(task.arguments[static_cast<std::size_t>(*beta)]);
  return factor.isScalar() && factor.toScalar().equal(0);
}

bool reads_values_of(const Task& task, std::size_t argument) {
  // `x.relu_()` reads what it writes; `x.zero_()`, `x[:2] = y` and `out=` do not.
  if (is_written(task.op, argument)) return argument == 0 && task.op.hasTag(at::Tag::pointwise);
  return argument != 0 || !(asks_for_form_only(task.op.operator_name()) || counts_nothing(task));
}

// A copy of what is not filled is not filled either, so nothing is lost yet:
// `torch.empty(4).to(device).zero_()`.
bool is_copy(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> copies = {"aten::clone", "aten::_to_copy", "aten::copy_"};
  return copies.contains(op.operator_name().name);
}

Refusal refusal(std::string what, std::string why, std::string where) {
  return {std::move(what), std::move(why),
          "Fill it inside the function; a kernel that writes to it beside PyTorch's dispatcher must be "
          "registered as an operator (torch.library)",
          std::move(where)};
}

}  // namespace

std::optional<Refusal> uses_unfilled_memory(const Program& program) {
  std::unordered_set<BufferId> filled;
  const auto is_unfilled = [&](const TensorRef& ref) {
    return program.buffer(ref.buffer).kind == BufferKind::kInternal && ref.numel() > 0 &&
           !filled.contains(ref.buffer);
  };
  for (const Task& task : program.tasks) {
    bool unfilled = false;
    for (std::size_t i = 0; i < task.arguments.size(); ++i) {
      if (!reads_values_of(task, i)) continue;
      for_each_ref(task.arguments[i], [&](const TensorRef& ref) { unfilled |= is_unfilled(ref); });
    }
    if (unfilled && is_copy(task.op)) continue;
    if (unfilled)
      return refusal(task.op.operator_name().name, "it reads memory that no operator filled", task.where);
    for (const TensorRef& ref : task.writes) filled.insert(ref.buffer);
  }
  for (const Output& output : program.outputs) {
    if (is_unfilled(output.ref))
      return refusal("aten::empty", "a result lies in memory that no operator filled", "");
  }
  return std::nullopt;
}

}  // namespace nimble
