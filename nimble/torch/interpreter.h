#pragma once

#include <ATen/core/stack.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// Runs the tasks of a program one after the other through the dispatcher, each under the thread-local state
// it was recorded under, in memory that PyTorch's allocator gives: slow and simple, with no plan needed.
//
// An operator of a rewritten program may lay its result out otherwise than the program says (channels last
// instead of contiguous). Refs are then read as the same elements of that result; where no view of it has
// them in the strides that a ref asks for, or their reader may know that layout alone, it is copied into the
// layout the program says.
class Interpreter {
 public:
  // Runs the operator of `task` on the arguments in `stack` and leaves its results there.
  using Call = std::function<void(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Task* task)>;

  Interpreter(const Program& program, std::span<const at::Tensor> inputs, Call call = plain_call);

  static void plain_call(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Task* task);

  void run();

  // The results, in the layout that the program says. Keeps nothing else alive from then on.
  std::vector<at::Tensor> outputs() &&;

  // The tensor whose storage a buffer is, once it is there; an internal one is let go of after its last use.
  const at::Tensor& tensor_of(BufferId buffer) const { return places_[buffer.index()].tensor; }

 private:
  struct Place {
    at::Tensor tensor;        // as its maker returned it, or as it lives outside
    TensorRef said;           // how the program says that this tensor looks
    at::Tensor as_said = {};  // a copy in that layout, where somebody needed one
  };

  void run(const Task& task);
  void find_last_uses();
  torch::jit::Stack arguments(const Task& task);
  at::Tensor look(const TensorRef& ref, bool to_write, bool as_said);
  at::Tensor copy_as_said(Place& place);
  void make_room(const TensorRef& ref);

  const Program& program_;
  std::vector<at::Tensor> inputs_;
  Call call_;
  std::vector<Place> places_;                     // by buffer
  std::vector<std::vector<BufferId>> last_uses_;  // by task: internal buffers that nobody needs after it
};

}  // namespace nimble
