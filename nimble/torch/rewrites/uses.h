#pragma once

#include <optional>
#include <span>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// Who makes and who looks at what: the questions that patterns are matched with. Of one program, which must
// outlive this.
class Uses {
 public:
  explicit Uses(const Program& program);

  // The tasks that read or write a buffer, in order, each once.
  std::span<const TaskId> readers(BufferId buffer) const { return readers_[buffer.index()]; }
  std::span<const TaskId> writers(BufferId buffer) const { return writers_[buffer.index()]; }

  // Nobody but the program's own tasks ever sees this buffer.
  bool is_private(BufferId buffer) const;

  // Nobody at all does.
  bool is_unread(BufferId buffer) const { return readers(buffer).empty() && is_private(buffer); }

  // The task whose result this ref is, as a whole, if that is an internal buffer that nobody writes to again.
  std::optional<TaskId> maker(const TensorRef& ref) const;

  // The one task that looks at the first result of `task`, and looks at it as a whole and only once: nobody
  // else sees it, so a rewrite of the two may leave it out.
  std::optional<TaskId> only_reader(TaskId task) const;

  // Whether `task` would read the same values in the place of `later`: nobody writes to them in between.
  bool can_move(TaskId task, TaskId later) const;

  // All that is ever written to it is there when `task` begins.
  bool is_there(const TensorRef& ref, TaskId task) const;

  // Nobody changes these elements once they are there, so they may be read later than they were.
  bool never_rewritten(const TensorRef& ref) const;

  // The value never changes while the program runs, and a change between runs can be noticed: a weight.
  bool is_weight(const TensorRef& ref) const;
  // Computes weights from weights, and nothing else: done once, before the program runs.
  bool makes_weights(const Task& task) const;

 private:
  bool has_weights(BufferId buffer) const;

  const Program& program_;
  std::vector<std::vector<TaskId>> readers_, writers_;    // by buffer
  mutable std::vector<std::optional<bool>> are_weights_;  // by buffer, where it was asked for
};

// A task of this operator, whatever the overload; of PyTorch's none that writes to an `out` which it is
// given: it has more arguments, and its result lies where somebody wanted it.
bool is_call_of(const Task& task, std::string_view name);

// The n-th argument as a tensor, or none where it is absent; as a value.
const TensorRef* tensor_argument(const Task& task, std::size_t n);
const c10::IValue& value_argument(const Task& task, std::size_t n);

// The first result, which must be a tensor.
const TensorRef& first_result(const Task& task);

}  // namespace nimble
