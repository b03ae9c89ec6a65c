#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "nimble/torch/autograd_trace.h"
#include "nimble/torch/generator_sequences.h"
#include "nimble/torch/leaves.h"
#include "nimble/torch/outside_state.h"
#include "nimble/torch/program.h"
#include "nimble/torch/record_error.h"

namespace nimble {

class AllocationsOfCall;

// Watches one run of the user's function, call by call, and makes a Program of it. Fed by a dispatch mode,
// nearly always on one thread: backward passes stay on the thread that records. But TorchScript's fork hands
// the mode on to threads of its own, so calls may come from several at once.
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

  // A storage that a program already knows, as that program knows it: for recording a rewritten one anew.
  void know(const Buffer& buffer);
  // The buffer that this tensor looks at, if it was seen.
  std::optional<BufferId> buffer_of(const at::Tensor& tensor) const;

  // Runs one operator, whose arguments are the top of `stack`, replaces them by its results, and notes what
  // it did: as one task, or as several that can run side by side (calls_apart). The dispatch mode must be
  // inactive. `where` is the user's source line, if known.
  void call(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string where = {});

  // Whose forward is running, for reports: "layer1.0.conv1", or nothing between modules.
  void set_module(std::string path);

  // Something that cannot be replayed was seen outside of any operator (printing a tensor, .numpy()).
  void refuse(Refusal refusal);
  const std::optional<Refusal>& refusal() const { return refusal_; }

  // Calls between these belong to one step of an optimizer. What is refused there may pass: the host can do
  // the whole step itself.
  void begin_step();
  void end_step();

  // A backward pass follows, of which these are the gradients that it is given: a part and inputs of their
  // own.
  void begin_backward(std::span<const at::Tensor> gradients);

  // Until `resume`, calls run but are not recorded: the host does them itself between two parts of a replay.
  void pause();
  void resume();

  // By pause: the gradients that the host found.
  const std::vector<std::vector<LeafGradient>>& gradients_at_pauses() const { return gradients_at_pauses_; }

  // Nothing but constants went into this tensor, so its values are the same at every call.
  bool is_constant(const at::Tensor& tensor);

  // Whether autograd went backward, and through the graph behind this result in particular: then the result
  // is a value and no more, nobody can go backward from it again.
  bool went_backward() const { return autograd_.any(); }
  bool went_backward_from(const at::Tensor& output) const { return autograd_.ran_behind(output); }

  // Tensors that live outside and for which autograd keeps a gradient.
  std::vector<at::Tensor> leaves() const { return leaves_.seen(); }

  // Where an operator was first given a tensor from outside that is a result itself: autograd goes back from
  // it to leaves that nobody here knows of.
  const std::optional<std::string>& used_result_from_outside() const { return used_result_from_outside_; }

  // Whether there were pauses.
  bool is_in_parts() const { return program_.parts > 1; }

  // Whether the program reads or writes this storage.
  bool knows(const c10::Storage& storage) const;

  // Storages made while recording that outlive the function without being returned. Ask after the function's
  // own variables are gone.
  std::vector<c10::Storage> escaped(std::span<const at::Tensor> outputs);

  // The program. `kept` are tensors with a place outside where a replay leaves its result (a module's
  // attribute, a gradient). A storage that escaped to anywhere else is refused, unless there was a backward
  // pass (begin_backward): then autograd's graph of this run may hold it. Of the outputs, the first
  // `forward_outputs` are wanted before that pass. Requires !refusal() or returns nothing useful.
  Program finish(std::span<const at::Tensor> outputs, std::span<const at::Tensor> kept = {},
                 std::size_t forward_outputs = 0);

 private:
  struct Tracked;

  BufferId track(const at::Tensor& tensor, Buffer buffer, bool constant);
  // The buffer of a tensor that some call takes or that is returned; one never seen before lives outside.
  BufferId known_buffer(const at::Tensor& tensor);
  // The buffer of a tensor that a call returned, and whether that call made it.
  std::pair<BufferId, bool> result_buffer(const at::Tensor& tensor, bool constant,
                                          AllocationsOfCall& allocations);
  // An argument may be a part of a tensor outside that the function uses as well: that shows where it looks
  // beyond its arguments. Then they lie where they are, and not elsewhere at every call.
  bool lies_within_inputs(const TensorRef& ref) const;  // or in no input's memory
  void bind_outside(const at::Tensor& tensor, BufferId input);
  Operand argument_operand(const c10::IValue& value);
  void see_leaf(const at::Tensor& tensor);

  bool is_refused();
  bool is_paused();
  void call_once(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string where);
  struct Call;  // what is known before an operator runs
  Call before(const c10::OperatorHandle& op, const torch::jit::Stack& stack, std::string where);
  void keep_before(const Call& call);
  void call_unrecorded(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  void begin_part();
  void after(Call call, AllocationsOfCall& allocations, c10::ArrayRef<c10::IValue> results);

  std::mutex mutex_;  // of all that calls look at and change
  OnRefusal on_refusal_;
  std::optional<Refusal> refusal_;
  Program program_;
  std::vector<at::Tensor> inputs_;
  OutsideState* undo_ = nullptr;
  GeneratorSequences sequences_;
  AutogradTrace autograd_;
  bool paused_ = false;
  bool has_backward_ = false;
  std::size_t steps_ = 0;
  bool in_step_ = false;
  std::vector<std::vector<LeafGradient>> gradients_at_pauses_;
  Leaves leaves_;
  std::optional<std::string> used_result_from_outside_;
  std::unordered_map<const c10::StorageImpl*, Tracked> tracked_;
  std::vector<bool> constant_;    // by buffer: nothing but constants went into it so far
  std::vector<at::Tensor> held_;  // by buffer: keeps what may fold to a constant alive
};

}  // namespace nimble
