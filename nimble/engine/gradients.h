#pragma once

#include <functional>
#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/torch/program_builder.h"

namespace nimble {

// The gradients that autograd keeps for leaf tensors (parameters), around one recorded run: a replay asks for
// what they were before it, where that mattered, and leaves them as the run left them.
class Gradients {
 public:
  Gradients() = default;
  explicit Gradients(const Tensors& leaves);  // as they are now

  // The recorded run is over. False if it went backward to leaves that were not known before: whether their
  // gradients were there when it began, nobody can tell.
  bool recorded(const ProgramBuilder& builder);

  Tensors leaves() const;
  Tensors made() const;  // gradients that somebody found, in a pause of the run or after it

  // Visits each leaf with the gradient that it had in the n-th pause, or after the run, which may be none.
  using Visit = std::function<void(const at::Tensor& leaf, const at::Tensor& gradient)>;
  void for_each_at_pause(std::size_t pause, const Visit& visit) const;
  void for_each_at_end(const Visit& visit) const;

  // Whether the gradients are now as the run found them, as far as it looked at them.
  bool hold() const;

  // Before a replay, which reads and writes the memory of recorded gradients.
  void before_replay();

  // In a check, where eager code has gradients of its own: the recorded ones become what the host made of
  // those in the n-th pause (Nesterov's momentum, unscaling).
  void follow_host_at_pause(std::size_t pause) const;

  // After a check: the recorded gradients take the values of those that eager code left, and their places.
  void follow_eager() const;

  // Gives every leaf the gradient that it had in the n-th pause, after the run, or before it.
  void put_back_at_pause(std::size_t pause) const;
  void put_back() const;
  void undo() const;

 private:
  struct Place {
    at::Tensor leaf, before, after;
    bool before_matters = false;
    // Whoever has a gradient may give it other memory (`p.grad.data = …`), but a replay reads and writes that
    // of the recording.
    const c10::StorageImpl* memory_before = nullptr;
    at::Tensor recorded_after = {};  // looks at that memory, and nobody else has it

    bool holds() const;
    bool left_by_last_replay() const;
    bool after_was_moved() const;
  };

  // Where it stands for the gradient that the run left, here and in pauses.
  void replace_after(Place& place, const at::Tensor& successor);
  void take_back_moved();

  // Somebody who kept a recorded tensor keeps its values, in other memory.
  void spare_what_others_hold();
  // Where a leaf has the gradient that the last replay left, and this one reads the recorded one.
  void take_over_values();

  std::vector<Place> places_;
  std::vector<std::vector<LeafGradient>> pauses_;
};

}  // namespace nimble
