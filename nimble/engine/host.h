#pragma once

#include <functional>
#include <memory>
#include <string>

#include "nimble/backend/executable.h"
#include "nimble/torch/program_builder.h"

namespace nimble {

// Notices changes outside of the arguments that a recorded program does not hold for: a parameter that was
// replaced, a module switched from eval to train.
class OutsideGuard {
 public:
  virtual ~OutsideGuard() = default;

  // Whether everything is as it was when the program was recorded. Asked at every call, so it must be quick.
  virtual bool holds() = 0;

  // What is another when it does not hold, in words for a warning.
  virtual std::string what_changed() {
    return "a module's mode, hooks, submodules or tensors, or something else that it depends on, is "
           "another at each call";
  }

  // Tensors that escaped while recording (an attribute that forward sets), each with what its place holds
  // now.
  struct Kept {
    at::Tensor recorded, now;
  };
  virtual std::vector<Kept> kept() { return {}; }

  // Puts the recorded ones, which a replay writes to, back in their places.
  virtual void put_back() {}

  // Does what the host did in the n-th pause of the recording.
  virtual void host_step(std::size_t pause) { static_cast<void>(pause); }
  virtual std::string name_of_step(std::size_t pause) const {
    static_cast<void>(pause);
    return "";
  }
};

// What a host wants to find again when a recording answers a call: how the results are arranged, say.
class HostNote {
 public:
  virtual ~HostNote() = default;

  // Whether two recordings of one function gave the same besides tensors.
  virtual bool same_as(const HostNote& other) const = 0;
};

// Whoever asked for the compilation, as the engine sees it: a plain C++ program or the Python package.
class Host {
 public:
  virtual ~Host() = default;

  // Called around what the host does itself in each pause of the recording, in an eager run.
  struct Pauses {
    std::function<void(std::size_t)> before, after;
  };
  // The user's function, eagerly.
  virtual Tensors run(const Tensors& inputs, const Pauses* pauses = nullptr) = 0;

  // The same with every operator call fed to `builder`. When it returns, nothing but the results may still be
  // held.
  virtual Tensors record(const Tensors& inputs, ProgramBuilder& builder) = 0;

  // Runs `backward`, which goes back through autograd's graph of the run that was just recorded, with every
  // operator call fed to `builder`.
  virtual void record_backward(ProgramBuilder& builder, const std::function<void()>& backward) = 0;

  // Tensors known to live outside (parameters and buffers), to notice an argument that shares memory with
  // one.
  virtual Tensors outside() { return {}; }

  // Those places outside the function that hold one of the escaped storages.
  virtual Tensors kept(std::span<const c10::Storage> escaped) {
    static_cast<void>(escaped);
    return {};
  }

  // Asked right after `record`; comes back with every replay of that recording.
  virtual std::shared_ptr<HostNote> note() { return nullptr; }

  virtual std::unique_ptr<OutsideGuard> watch(const Program& program) {
    static_cast<void>(program);
    return nullptr;
  }

  // This step of an optimizer cannot be replayed: it differs from call to call, or computes on the CPU for
  // parameters on a GPU. True if the host will do the step itself from the next recording on, in a pause.
  virtual bool take_over(std::size_t step) {
    static_cast<void>(step);
    return false;
  }

  // A warning the user should read, given once for each reason; and something for the log.
  virtual void warn(const std::string& text) = 0;
  virtual void log(const std::string& text) = 0;
};

}  // namespace nimble
