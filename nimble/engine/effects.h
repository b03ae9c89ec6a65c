#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/engine/tolerance.h"
#include "nimble/torch/outside_state.h"

namespace nimble {

// All that a run changes, as values with names that a user understands: its results, tensors outside,
// generators.
class Effects {
 public:
  // What is to be seen of a tensor.
  using Seen = std::function<at::Tensor(const at::Tensor&)>;
  static at::Tensor as_it_is(const at::Tensor& tensor) { return tensor; }

  // Results, and what is seen of everything that `places` names. Tensors that share memory with one of
  // `except` are left out.
  static Effects observe(const Tensors& results, const OutsideState& places,
                         std::span<const at::Tensor> except = {}, const Seen& seen = as_it_is);

  const Tensors& values() const { return values_; }

  void add(std::string name, const at::Tensor& value);  // keeps a copy

  struct Difference {
    std::string name;
    std::string excess = {};  // by how much, where they may differ at all
  };
  // The first value in which another run of the same differs, bit by bit; or, where runs differ by
  // themselves, by more than that explains; or, with a tolerance, by more than that allows.
  std::optional<Difference> difference(const Effects& other, const std::optional<class Spread>& spread,
                                       const std::optional<Tolerance>& tolerance = std::nullopt) const;

 private:
  friend class Spread;
  std::vector<std::string> names_;
  Tensors values_;
};

// Replays from the state that `before` holds, and waits until it is done.
Tensors replay_from(const OutsideState& before, Executable& executable, std::span<const at::Tensor> inputs);

// How much the same replay, done again and again from the same state, differs from itself: some kernels add
// in any order.
class Spread {
 public:
  explicit Spread(Effects first);
  void add(const Effects& another);

  bool any() const { return relative_ > 0; }
  double widest(std::size_t n) const { return widest_[n]; }
  // How far apart two runs may be in the n-th value, whose magnitude is given.
  double allowed(std::size_t n, double magnitude) const;

 private:
  Effects first_;
  std::vector<double> magnitude_;  // by value
  std::vector<double> widest_;     // by value
  double relative_ = 0;            // the widest, relative to the magnitude of its value
};

// The spread of what `run` does, time after time, alone on the device and beside other work; `first` is what
// it did before. Only kernels on a GPU vary, and none where PyTorch is told to be deterministic: there is
// none then.
std::optional<Spread> measure_spread(c10::Device device, const Effects& first,
                                     const std::function<Effects()>& run);

// The difference of two runs that the spread of `run` does not explain, however often that is looked at: a
// few times do not show what happens now and then (a sum that is rounded otherwise, and once in a thousand
// times to another TF32 number). Widens `spread`.
std::optional<Effects::Difference> unexplained_difference(
    const Effects& one, const Effects& other, std::optional<Spread>& spread, c10::Device device,
    const std::function<Effects()>& run, const std::optional<Tolerance>& tolerance = std::nullopt);

}  // namespace nimble
