#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nimble/core/ids.h"
#include "nimble/torch/tensor_ref.h"
#include "nimble/torch/thread_state.h"

namespace nimble {

enum class BufferKind {
  kInput,     // an argument of the call: it lies elsewhere every time
  kExternal,  // lives outside: a parameter, a module's buffer, optimizer state
  kConstant,  // made while recording from nothing but numbers; the program holds it
  kInternal,  // made by a task
  kScratch,   // allocated and freed inside one task
  kEscaped,   // made by a task and still owned by somebody outside: replay writes to that same place
  kDerived,   // made by a rewrite from outside tensors (folded weights) and made again when those change
};

// One storage.
struct Buffer {
  BufferKind kind = BufferKind::kInternal;
  std::uint64_t bytes = 0;
  c10::Device device = c10::kCPU;
  // kExternal, kConstant, kEscaped, kDerived: the tensor as it was first seen, which owns the storage, and
  // the address it had.
  at::Tensor outside = {};
  void* address = nullptr;
  bool returned = false;  // a result of the program looks at it, so it belongs to the caller

  // What escaped may have moved since it was recorded.
  void* where_it_lies() const {
    return kind == BufferKind::kEscaped ? outside.storage().mutable_data() : address;
  }
};

// A list of tensors as one argument or result; absent ones are allowed where the operator allows them.
struct TensorRefList {
  std::vector<std::optional<TensorRef>> refs;
  bool of_optionals = false;  // Tensor?[] rather than Tensor[]
};
// An argument or result: a number, string, generator or none by value; a tensor or list of tensors by ref.
using Operand = std::variant<c10::IValue, TensorRef, TensorRefList>;

// The n-th allocation that a task makes.
struct Allocation {
  std::uint64_t bytes = 0;
  BufferId buffer;
};

// A place in the sequence of a random generator: 0 is where the program begins, n is behind the n-th task
// that draws from it.
struct Draw {
  at::Generator generator;
  std::size_t position = 0;
};

struct Task {
  c10::OperatorHandle op;
  std::vector<Operand> arguments;
  // By tensor among the arguments, in order: the first that is the very same tensor. Some operators ask
  // (attention whose query is its key), so a replay must pass one tensor there too, not two that look alike.
  std::vector<std::size_t> twins = {};
  std::vector<Operand> results = {};
  std::vector<Allocation> allocations = {};
  std::vector<TensorRef> reads = {};
  std::vector<TensorRef> writes = {};
  // Random tasks: where it begins to draw. Usually behind the task that drew before it, or earlier where the
  // function set the generator back (checkpointing draws the same numbers twice).
  std::optional<Draw> draw = {};
  // Which part of the program it belongs to: what the host does in between cuts a program into parts.
  std::size_t part = 0;
  // Which step of an optimizer it belongs to, counted from one; 0 for none.
  std::size_t step = 0;
  ThreadState state = {};
  std::string where = {};  // the user's source line, empty where unknown
  // The module whose forward made it, or whose backward pass it belongs to: "layer1.0.conv1". Empty where
  // unknown.
  std::string module = {};
  std::string node = {};  // of autograd's graph, that called it; empty in a forward pass
};

// What a pass did to a program before it was planned: for people who wonder where a task went.
struct Note {
  std::string what;     // "folded"
  std::string subject;  // the task it was done to
  std::string how;      // or why
  std::string where = {}, module = {};
};

struct Output {
  TensorRef ref;
  std::optional<std::size_t> same_as_input = {};   // the very tensor that was passed in
  std::optional<std::size_t> same_as_output = {};  // the very tensor that an earlier output is
  at::Tensor outside = {};                         // the very tensor that lives outside (a parameter)
  std::size_t part = 0;                            // behind which part of the program it is wanted
};

struct Derivation;  // see derivation.h

// Straight-line code: what one run of the user's function did, below autograd, in order. A value: passes make
// new programs from it. Holds the outside tensors it reads and writes alive.
struct Program {
  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  std::vector<TensorRef> inputs;
  std::vector<Output> outputs;
  std::vector<Draw> generators = {};  // each that a task draws from, once, and where it is left
  std::size_t parts = 1;
  std::vector<std::vector<Draw>> generators_at_cuts = {};  // by cut between two parts: where each was
  std::vector<Note> notes = {};
  // How derived buffers are made; a later one may read what an earlier one made.
  std::vector<std::shared_ptr<const Derivation>> derivations = {};

  const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
  const Task& task(TaskId id) const { return tasks[id.index()]; }
  c10::Device device() const;  // of the inputs and internal buffers
};

// "convolution#12": short, unique, stable.
std::string task_name(const Program& program, TaskId task);

// One line for each task, with shapes and buffers.
std::string to_string(const Program& program);

// Calls `visit(const TensorRef&)` for each tensor of an operand.
template <class Visit>
void for_each_ref(const Operand& operand, Visit&& visit) {
  if (const auto* ref = std::get_if<TensorRef>(&operand)) {
    visit(*ref);
  } else if (const auto* list = std::get_if<TensorRefList>(&operand)) {
    for (const auto& element : list->refs) {
      if (element) visit(*element);
    }
  }
}

}  // namespace nimble
