#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nimble/engine/differentiable.h"
#include "nimble/engine/gradients.h"
#include "nimble/engine/host.h"
#include "nimble/torch/outside_state.h"

namespace nimble {

// One run of the user's function that was watched.
struct Recording {
  Tensors outputs;
  std::shared_ptr<const Program> program;  // null if refused
  std::vector<std::shared_ptr<const Program>> parts;
  std::unique_ptr<OutsideGuard> guard;
  std::shared_ptr<HostNote> note;
  Tensors outside;  // parameters and buffers of the modules that ran
  Tensors leaves;   // parameters that turned up, in this run or before
  Gradients gradients;
  std::string refusal;
  bool may_pass = false;  // the refusal: the next call is worth another try
  // The program's second part, where its results are part of an autograd graph that nobody went back through.
  std::optional<Derivative> derivative;
  double milliseconds = 0;
};

enum class OnRefusal { kThrow, kReturn };

// Runs the user's function once, eagerly, and watches it. `leaves` are parameters known from earlier runs,
// `used` tells which results earlier losses went back from. Throws what the function throws, and RecordError
// where it cannot be replayed and `on_refusal` says so; either way nothing outside stays changed if
// `undoable`.
Recording record(const Tensors& inputs, Host& host, OnRefusal on_refusal, bool undoable,
                 const Tensors& leaves, const UsedResults& used);

// True on a thread that is recording or checking: a compiled function called there runs its own function, so
// that the outer recording sees its operators and the check compares with eager alone.
bool is_recording();

class RecordingScope {
 public:
  RecordingScope();
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool multithreaded_;
};

}  // namespace nimble
