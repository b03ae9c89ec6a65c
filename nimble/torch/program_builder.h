#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "nimble/torch/outside_state.h"
#include "nimble/torch/program.h"
#include "nimble/torch/record_error.h"

namespace nimble {

// Watches one run of the user's function, call by call, and makes a Program of it. Fed by a dispatch mode;
// calls may come from several threads (autograd has its own).
//
// Identity is storage: a buffer is one storage, held weakly so that recording costs no memory.
class ProgramBuilder {
 public:
  // What to do when something cannot be replayed: throw RecordError at once, in the middle of the user's
  // function, or remember the first such thing and let the function run on as if nobody watched.
  enum class OnRefusal { kThrow, kRemember };

  // `outside` are tensors known to live outside (parameters and buffers of the modules concerned): an input
  // that shares memory with one of them is bound to that memory instead of being replaced at each call.
  ProgramBuilder(std::span<const at::Tensor> inputs, OnRefusal on_refusal,
                 std::span<const at::Tensor> outside = {});
  ~ProgramBuilder();

  // Keeps a copy of every outside tensor, input and generator in `undo` before its first change.
  void keep_before_change(OutsideState* undo);

  // Runs one operator, whose arguments are the top of `stack`, replaces them by its results, and notes what
  // it did. The dispatch mode must be inactive. `where` is the user's source line, if known.
  void call(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string where = {});

  // Something that cannot be replayed was seen outside of any operator (printing a tensor, .numpy()).
  void refuse(Refusal refusal);
  const std::optional<Refusal>& refusal() const { return refusal_; }

  // Nothing but constants went into this tensor, so its values are the same at every call.
  bool is_constant(const at::Tensor& tensor);

  // Storages made while recording that outlive the function without being returned. Ask after the function's
  // own variables are gone.
  std::vector<c10::Storage> escaped(std::span<const at::Tensor> outputs);

  // The program. `kept` are tensors with a place outside where a replay leaves its result (a module's
  // attribute, a gradient). A storage that escaped to anywhere else is refused. Requires !refusal() or
  // returns nothing useful.
  Program finish(std::span<const at::Tensor> outputs, std::span<const at::Tensor> kept = {});

 private:
  struct Tracked;
  class Observer;

  BufferId add_buffer(Buffer buffer, bool constant);
  BufferId track(const at::Tensor& tensor, Buffer buffer, bool constant);
  // The buffer of a tensor that some call takes or that is returned; one never seen before lives outside.
  BufferId known_buffer(const at::Tensor& tensor);
  // The buffer of a tensor that a call returned, and whether that call made it.
  std::pair<BufferId, bool> result_buffer(const at::Tensor& tensor, bool constant, Observer& observer);
  Operand argument_operand(const c10::IValue& value);

  struct Call;  // what is known before an operator runs
  Call before(const c10::OperatorHandle& op, const torch::jit::Stack& stack, std::string where);
  void keep_before(const Call& call);
  bool is_filled(BufferId buffer) const;  // some task writes to it
  void expect_sequence(const at::Generator& generator);
  std::optional<Refusal> sequence_broken(const Call& call);
  void after(Call call, Observer& observer, c10::ArrayRef<c10::IValue> results);

  std::mutex mutex_;
  OnRefusal on_refusal_;
  std::optional<Refusal> refusal_;
  Program program_;
  std::vector<at::Tensor> inputs_;
  OutsideState* undo_ = nullptr;
  // The state that each generator was left in, to notice when the function seeds it or sets it back.
  std::unordered_map<const c10::GeneratorImpl*, at::Tensor> generator_states_;
  std::unordered_map<const c10::StorageImpl*, Tracked> tracked_;
  std::vector<bool> constant_;    // by buffer: nothing but constants went into it so far
  std::vector<at::Tensor> held_;  // by buffer: keeps what may fold to a constant alive
};

}  // namespace nimble
