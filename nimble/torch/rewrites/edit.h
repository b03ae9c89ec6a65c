#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// Changes to a program, collected while it is looked at and made at once at the end. Ids stay those of the
// program that it began with.
class Edit {
 public:
  explicit Edit(const Program& program) : program_(program), buffers_(program.buffers) {}

  // A tensor that does not exist yet: some task of this edit shall make it.
  TensorRef new_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device);

  // Puts a call before task `at`, which lends it its place in the user's code and its thread state.
  void insert(TaskId at, const c10::OperatorHandle& op, std::vector<Operand> arguments,
              std::vector<Operand> results);

  // Puts a call in the place of task `at`.
  void replace(TaskId at, const c10::OperatorHandle& op, std::vector<Operand> arguments,
               std::vector<Operand> results);

  void drop(TaskId task) { dropped_.insert(task); }
  bool touches(TaskId task) const { return dropped_.contains(task) || replaced_.contains(task); }

  // A task as `insert` and `replace` make it, to be measured.
  Task make_task(TaskId like, const c10::OperatorHandle& op, std::vector<Operand> arguments,
                 std::vector<Operand> results) const;
  std::span<const Buffer> buffers() const { return buffers_; }

  Program finish() &&;

 private:
  const Program& program_;
  std::vector<Buffer> buffers_;
  std::set<TaskId> dropped_;
  std::map<TaskId, Task> replaced_;
  std::map<TaskId, std::vector<Task>> inserted_;  // by the task that they go before
};

// An operand that may be absent.
Operand optional_ref(const std::optional<TensorRef>& ref);

// What a task allocates if that is its results and nothing else; what it really does, recording anew tells.
void find_allocations(Task& task, std::span<const Buffer> buffers);

// What a task reads and writes, as its operator and operands say; for a task whose operands were changed.
void find_accesses(Task& task);

}  // namespace nimble
