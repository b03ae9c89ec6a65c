#include "nimble/torch/random_states.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace nimble {
namespace {

bool drops(const Task& task) {
  const auto argument = task.op.schema().argumentIndexWithName("dropout_p");
  return argument &&
         std::get<c10::IValue>(task.arguments[static_cast<std::size_t>(*argument)]).toDouble() > 0;
}

}  // namespace

std::optional<Refusal> returns_unfilled_random_state(const Program& program) {
  static const std::unordered_map<std::string_view, std::vector<std::size_t>> states_of = {
      {"aten::_flash_attention_forward", {2, 3}}, {"aten::_scaled_dot_product_flash_attention", {6, 7}}};
  for (const Task& task : program.tasks) {
    const auto states = states_of.find(task.op.operator_name().name);
    if (states == states_of.end() || drops(task)) continue;
    const bool wanted = std::any_of(states->second.begin(), states->second.end(), [&](std::size_t result) {
      const auto* ref = std::get_if<TensorRef>(&task.results[result]);
      return ref && ref->numel() > 0 && program.buffer(ref->buffer).returned;
    });
    if (!wanted) continue;
    return Refusal{task.op.operator_name().name,
                   "without dropout it leaves the random state that it returns unfilled",
                   "Do not return that state from the compiled function", task.where};
  }
  return std::nullopt;
}

std::optional<Refusal> takes_random_state_from_elsewhere(const Program& program) {
  static constexpr const char* kStates[] = {"philox_seed", "philox_offset", "rng_state"};
  for (const Task& task : program.tasks) {
    if (!drops(task)) continue;
    const auto is_elsewhere = [&](const char* name) {
      const auto argument = task.op.schema().argumentIndexWithName(name);
      const auto* state =
          argument ? std::get_if<TensorRef>(&task.arguments[static_cast<std::size_t>(*argument)]) : nullptr;
      if (!state || !program.buffer(state->buffer).device.is_cpu()) return false;
      return std::none_of(program.tasks.begin(), program.tasks.end(), [&](const Task& other) {
        return other.part == task.part &&
               std::any_of(other.writes.begin(), other.writes.end(),
                           [&](const TensorRef& ref) { return ref.buffer == state->buffer; });
      });
    };
    if (std::none_of(std::begin(kStates), std::end(kStates), is_elsewhere)) continue;
    return Refusal{
        task.op.operator_name().name,
        "it drops what its forward pass dropped, by a random state that lies in host memory, where "
        "a kernel of a CUDA graph cannot read it",
        "Compile the whole training step instead of the module, or use attention without dropout",
        task.where};
  }
  return std::nullopt;
}

}  // namespace nimble
