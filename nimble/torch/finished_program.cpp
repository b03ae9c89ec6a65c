// The recorded run is over: where its results are, what outlives it, and whether all of it can be replayed.

#include <algorithm>

#include "nimble/torch/constant_folding.h"
#include "nimble/torch/host_data.h"
#include "nimble/torch/random_states.h"
#include "nimble/torch/recorded_call.h"
#include "nimble/torch/unfilled_memory.h"
#include "nimble/torch/unused_vectors.h"

namespace nimble {

Program ProgramBuilder::finish(std::span<const at::Tensor> outputs, std::span<const at::Tensor> kept,
                               std::size_t forward_outputs) {
  for (const at::Tensor& tensor : kept) {
    const auto found = tracked_.find(storage_of(tensor));
    if (found == tracked_.end()) continue;
    Buffer& buffer = program_.buffers[found->second.buffer.index()];
    const bool stays_as_it_is = constant_[found->second.buffer.index()];
    if (buffer.kind != BufferKind::kInternal || stays_as_it_is) continue;
    buffer.kind = BufferKind::kEscaped;
    buffer.outside = tensor.detach();  // the tensor itself is its holder's
    buffer.address = tensor.storage().mutable_data();
  }
  for (const c10::Storage& storage : escaped(outputs)) {
    if (has_backward_) break;
    const BufferId id = tracked_.at(storage.unsafeGetStorageImpl()).buffer;
    const auto maker = std::find_if(program_.tasks.begin(), program_.tasks.end(), [&](const Task& task) {
      return std::any_of(task.writes.begin(), task.writes.end(),
                         [&](const TensorRef& ref) { return ref.buffer == id; });
    });
    if (program_.buffer(id).kind == BufferKind::kEscaped || maker == program_.tasks.end()) continue;
    refuse(
        {maker->op.operator_name().name,
         "its result outlives the function without being returned, and there is no place to put the next one",
         "Return the tensor, or keep it as an attribute of a module that runs inside the compiled function",
         maker->where, /*may_pass=*/true});
    return {};
  }

  for (const at::Tensor& tensor : outputs) {
    if (auto refusal = unsupported("a result", tensor)) {
      refuse(*std::move(refusal));
      return {};
    }
    Output output{.ref = describe(tensor, known_buffer(tensor))};
    output.ref.requires_grad = false;
    output.part = program_.outputs.size() < forward_outputs ? 0 : program_.parts - 1;
    Buffer& buffer = program_.buffers[output.ref.buffer.index()];
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(tensor); };
    if (const auto found = std::find_if(inputs_.begin(), inputs_.end(), is_same); found != inputs_.end()) {
      output.same_as_input = found - inputs_.begin();
    } else if (const auto twin = std::find_if(outputs.begin(), outputs.end(), is_same);
               twin != outputs.begin() + static_cast<std::ptrdiff_t>(program_.outputs.size())) {
      output.same_as_output = twin - outputs.begin();
    } else if (buffer.kind == BufferKind::kExternal && buffer.outside.is_same(tensor)) {
      output.outside = tensor;
    }
    buffer.returned = true;
    program_.outputs.push_back(std::move(output));
  }
  auto generators = sequences_.ends();
  if (!generators) {
    refuse({"a random generator that is seeded inside the function",
            "a replay goes on with the generator's sequence", "Seed it before or after the call", ""});
    return {};
  }
  program_.generators = *std::move(generators);
  for (const auto look : {uses_unfilled_memory, computes_unused_vectors, returns_unfilled_random_state}) {
    if (auto refusal = look(program_)) {
      refuse(*std::move(refusal));
      return {};
    }
  }
  Program folded = fold_constants(std::move(program_), held_);
  if (auto refusal = writes_host_data(folded)) {
    refuse(*std::move(refusal));
    return {};
  }
  return folded;
}

}  // namespace nimble
