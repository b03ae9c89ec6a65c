#include "nimble/engine/recording.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <chrono>

#include "nimble/torch/record_error.h"
#include "nimble/torch/recorded_values.h"
#include "nimble/torch/split.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int recording_depth = 0;

// What a first run set up is there at the next.
constexpr const char* kNotSettled =
    "[nimble::record] the function made gradients for parameters that were not known before";
// Whoever prepares undoes what a run sets up, so running it once more at once would be of no use.
constexpr const char* kCallFirst = "call the function once, then prepare() again";

// Tensors that were made while recording and have a place outside where a replay can leave them.
Tensors tensors_with_a_place(const Recording& recording, ProgramBuilder& builder, Host& host) {
  Tensors kept = recording.gradients.made();
  auto escaped = builder.escaped(recording.outputs);
  std::erase_if(escaped, [&](const c10::Storage& storage) {
    return std::any_of(kept.begin(), kept.end(), [&](const at::Tensor& tensor) {
      return tensor.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
    });
  });
  if (!escaped.empty()) {
    for (at::Tensor& tensor : host.kept(escaped)) kept.push_back(std::move(tensor));
  }
  return kept;
}

// Records the way back from results that autograd can differentiate. False if there is no telling yet what
// that will be.
bool make_derivative(Recording& recording, const Tensors& inputs, ProgramBuilder& builder, Host& host,
                     const UsedResults& used, bool used_may_show, Tensors& made) {
  const auto refuse = [&](const std::string& why, bool may_pass) {
    recording.refusal = "[nimble::record] " + why;
    recording.may_pass = may_pass;
    return false;
  };
  if (builder.went_backward())
    return refuse("the function goes backward itself and returns results that require grad as well", false);
  if (builder.is_in_parts())
    return refuse("an optimizer that computes on the host, in a function whose results require grad", false);
  if (const auto& where = builder.used_result_from_outside()) {
    return refuse(
        "the function uses a tensor that was computed outside of it and that requires grad" +
            (where->empty() ? "" : " (" + *where + ")") +
            ": gradients would not reach what it was computed from. Pass it as an argument, or compute "
            "it inside the function",
        false);
  }
  if (computed_from_one_another(inputs, builder))
    return refuse(
        "an argument was computed from another one, or from a parameter that the function uses as well, so "
        "that gradients reach that on two ways. Compute it inside the function, or detach() it",
        false);
  if (used.vary()) return refuse("the loss uses other results of the function from call to call", false);
  if (used_may_show && !used.seen() && differentiable_results(inputs, recording.outputs).size() > 1)
    return refuse("which results the loss uses is not known yet", true);
  recording.derivative = record_derivative(inputs, recording.outputs, builder, host, used, made);
  return true;
}

void make_program(Recording& recording, const Tensors& inputs, ProgramBuilder& builder, Host& host,
                  const UsedResults& used, bool undoable) {
  recording.leaves = recording.gradients.leaves();
  for (const at::Tensor& leaf : builder.leaves()) recording.leaves.push_back(leaf);
  // What ran after such a refusal was not watched: whether anybody went backward from a result is not known.
  if (builder.refusal() && builder.refusal()->may_pass) return;
  for (const at::Tensor& result : recording.outputs) {
    if (!result.defined()) return builder.refuse(*unsupported("a result", result));
  }
  bool wants_grad = false;
  for (const std::size_t i : differentiable_results(inputs, recording.outputs)) {
    wants_grad |= !builder.went_backward_from(recording.outputs[i]);
  }
  if (builder.refusal()) return;
  const bool all_known = recording.gradients.recorded(builder);
  const Tensors kept = tensors_with_a_place(recording, builder, host);
  const RecordingScope also_backward;
  Tensors results = recording.outputs;
  if (wants_grad && !make_derivative(recording, inputs, builder, host, used, !undoable, results)) return;
  if (builder.refusal()) return;
  auto program =
      std::make_shared<Program>(builder.finish(results, kept, wants_grad ? recording.outputs.size() : 0));
  if (builder.refusal()) return;
  if (!all_known) {
    recording.refusal = undoable ? c10::str(kNotSettled, ": ", kCallFirst) : kNotSettled;
    recording.may_pass = true;
    return;
  }
  try {
    backend_for(program->device()).check(*program);
  } catch (const TaskRefused& refused) {
    const std::size_t step = program->tasks[refused.task].step;
    if (step == 0 || !host.take_over(step)) throw;
    recording.refusal = refused.what();
    recording.may_pass = true;
    return;
  }
  if (program->parts == 1) {
    recording.parts = {program};
  } else {
    for (Program& part : split_into_parts(*program)) {
      recording.parts.push_back(std::make_shared<const Program>(std::move(part)));
    }
  }
  recording.guard = host.watch(*program);
  recording.note = host.note();
  recording.outside = host.outside();
  recording.program = std::move(program);
}

}  // namespace

bool is_recording() { return recording_depth > 0; }

// Backward passes stay on this thread: cuDNN remembers by thread which kernels it found fastest, and a
// replay, which is prepared on this thread, shall find the same.
RecordingScope::RecordingScope()
    : multithreaded_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
  ++recording_depth;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}
RecordingScope::~RecordingScope() {
  --recording_depth;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(multithreaded_);
}

Recording record(const Tensors& inputs, Host& host, OnRefusal on_refusal, bool undoable,
                 const Tensors& leaves, const UsedResults& used) {
  const auto start = Clock::now();
  const bool throws = on_refusal == OnRefusal::kThrow;
  const Tensors outside = host.outside();
  Recording recording;
  OutsideState changed;
  ProgramBuilder builder(
      inputs, throws ? ProgramBuilder::OnRefusal::kThrow : ProgramBuilder::OnRefusal::kRemember, outside);
  if (undoable) builder.keep_before_change(&changed);
  Tensors known = leaves;
  known.insert(known.end(), outside.begin(), outside.end());
  recording.gradients = Gradients(known);
  const Gradients before = recording.gradients;
  const auto undo = [&] {
    if (!undoable) return;
    changed.restore();
    before.undo();
  };
  try {
    cpu_backend().watch_allocations();
    if (cuda_available()) cuda_backend().watch_allocations();
    // Autocast keeps casted weights for a while; a recording must see them made, and must not see them kept.
    at::autocast::clear_cache();
    {
      const RecordingScope scope;
      recording.outputs = host.record(inputs, builder);
    }
    at::autocast::clear_cache();
    try {  // what the function throws itself is no refusal: it has not answered
      make_program(recording, inputs, builder, host, used, undoable);
    } catch (const RecordError& error) {
      if (throws) throw;
      recording.refusal = error.what();
    }
  } catch (...) {
    undo();
    throw;
  }
  undo();
  if (auto refusal = builder.refusal()) {
    if (refusal->may_pass && undoable) {
      refusal->advice =
          c10::str("If only a first call does this (it sets up an optimizer's state, or a cache), ",
                   kCallFirst, ". Otherwise: ", refusal->advice);
    }
    recording.refusal = refusal->message();
    recording.may_pass = refusal->may_pass;
  }
  recording.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return recording;
}

}  // namespace nimble
