#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "nimble/torch/rewrites/edit.h"

namespace nimble {

// Who can write to a slice of a larger tensor, and who can read one.

// Where the parts of a concatenation (or a stack) lie in `whole`; none where parts and whole differ in more
// than what they are joined along.
std::optional<std::vector<TensorRef>> slices_for(const Task& cat, const TensorRef& whole);

// Pieces of memory of one size, evenly apart, as kernels for images and libraries can step through them: all
// of a slice along the channels where those of a pixel lie together, or one piece alone.
bool is_rows(const TensorRef& ref);

// Both have the same neighbours in memory.
bool same_order(const TensorRef& a, const TensorRef& b);

// What the task makes: its results, if each is a tensor of its own and it writes nothing else.
std::optional<std::vector<TensorRef>> made_by(const Task& task);

// The operator that does the same and writes the result to a tensor given as its last argument, or all
// results to those of a list, wherever they lie, without a copy; none where there is no such kernel.
std::optional<c10::OperatorHandle> out_form(const Task& task, c10::Device device);

// `writer` by such a form of it, whose other arguments are these, writing to `places`.
Task task_writing_to(const TensorRefList& places, TaskId writer, const c10::OperatorHandle& form,
                     std::vector<Operand> arguments, const Edit& edit);

// Its kernel reads slices where they are. cuDNN's convolutions, for one, copy them first.
bool reads_slices(const Task& task);

std::optional<std::size_t> argument_named(const c10::OperatorHandle& op, std::string_view name);

}  // namespace nimble
