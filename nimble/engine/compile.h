#pragma once

#include <functional>
#include <memory>

#include "nimble/engine/compiled.h"

namespace nimble {

// A function from tensors to tensors, as LibTorch programs write them.
using TensorFunction = std::function<Tensors(const Tensors&)>;

// What a compiled C++ function depends on besides its arguments, asked at every call. PyTorch cannot tell us,
// so name it: see `watch` for modules.
struct Outside {
  std::function<Tensors()> tensors;       // parameters and buffers in use
  std::function<std::int64_t()> variant;  // a number that changes when the function would do something else
};

// Names a torch::nn module, or a holder of one: its parameters, buffers, and whether it, and every module
// that it has now, trains.
template <class Module>
Outside watch(Module module) {
  return {.tensors =
              [module] {
                Tensors tensors = module->parameters();
                for (auto& buffer : module->buffers()) tensors.push_back(std::move(buffer));
                return tensors;
              },
          .variant =
              [module, below = module->modules(/*include_self=*/false)] {
                std::uint64_t modes = module->is_training() ? 1 : 0;
                for (const auto& part : below) modes = modes * 31 + (part->is_training() ? 1 : 0);
                return static_cast<std::int64_t>(modes);
              }};
}

// Names the optimizer as well, for a function that is a whole training step: its learning rates.
template <class Module, class Optimizer>
Outside watch(Module module, Optimizer& optimizer) {
  Outside outside = watch(module);
  outside.variant = [trains = outside.variant, &optimizer] {
    std::size_t seed = static_cast<std::size_t>(trains());
    for (const auto& group : optimizer.param_groups()) {
      seed = seed * 31 + std::hash<double>()(group.options().get_lr());
    }
    return static_cast<std::int64_t>(seed);
  };
  return outside;
}

// A callable that records `function` on its first call, compares on the second and replays from then on. A
// function may be a whole training step; one whose results require grad gives its backward pass to autograd.
// Copies share one cache. Thread-safe if `function` is.
class CompiledFunction {
 public:
  CompiledFunction(TensorFunction function, CompileOptions options, Outside outside);

  Tensors operator()(const Tensors& inputs) const;

  // Records and checks for inputs that look like these, ahead of time; throws RecordError if they cannot be
  // replayed.
  void prepare(const Tensors& inputs) const;
  void refresh() const;
  Stats stats() const;
  std::string explain() const;
  // See Compiled::report. Modules have no names here.
  std::string report(const Tensors& inputs) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Usable from a plain LibTorch program: no Python anywhere.
//   auto fast = nimble::compile([&](const Tensors& in) -> Tensors { return {net->forward(in[0])}; });
//   auto y = fast({x})[0];
CompiledFunction compile(TensorFunction function, CompileOptions options = {}, Outside outside = {});

}  // namespace nimble
