#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "nimble/torch/record_error.h"

namespace nimble {

// What the recorder must know of an operator beyond its schema.

// The operator only changes how its argument is looked at (`t_`, `unsqueeze_`, `set_`): later refs show it,
// so there is nothing to replay.
bool only_changes_metadata(const c10::OperatorHandle& op);

// The operator hands out memory without filling it: the memory plan does that, so there is nothing to replay.
bool only_allocates(const c10::OperatorHandle& op);

// The operator is bookkeeping of the host (profiler ranges) or a question about shapes and settings, not
// data.
bool is_host_bookkeeping(const c10::OperatorHandle& op);

// The operator draws from a random generator.
bool draws_random_numbers(const c10::OperatorHandle& op);

// The operator has no other effect than its results. Nobody knows what somebody's own operators do besides.
bool only_computes(const c10::OperatorHandle& op);

// The operator wraps data from the host (`torch.tensor([1, 2])`) into a tensor: what it is given is a
// constant.
bool lifts_a_constant(const c10::OperatorHandle& op);

// The n-th argument is written although the schema does not say so.
bool writes_argument_unannounced(const c10::OperatorHandle& op, std::size_t argument);

// The n-th argument is written, as the schema says or in spite of it; of a call with these arguments.
bool is_written(const c10::OperatorHandle& op, std::size_t argument);
bool is_written(const c10::OperatorHandle& op, std::size_t argument, c10::ArrayRef<c10::IValue> arguments);

// The operator takes the tensor for its result (`out=`).
bool writes_to_what_it_is_given(const c10::OperatorHandle& op);

// The operator may know no other layout of its tensors than the one that it is called with: its caller sees
// to that, or, of somebody's own operators, nobody can tell.
bool may_need_its_layout(const c10::OperatorHandle& op);

// The operator of this name; throws where PyTorch does not know it.
c10::OperatorHandle find_operator(const char* name, const char* overload = "");

// Why an operator cannot be replayed that exchanges data with other processes, if it does.
std::optional<Refusal> talks_to_other_processes(const c10::OperatorHandle& op);

// Why a call with these arguments cannot be replayed: it would turn data into host values or shapes.
std::optional<Refusal> depends_on_data(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace nimble
