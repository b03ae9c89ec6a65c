#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <random>
#include <vector>

namespace nimble {

// What a random program has computed so far, beginning with what it was given.
class RandomValues {
 public:
  // Makes one more value of those that are there, or changes one of them in place and gives none.
  using Operation = std::function<at::Tensor(RandomValues&)>;

  RandomValues(std::vector<at::Tensor> given, std::size_t made, std::uint64_t seed)
      : values_(std::move(given)), made_(made), random_(seed) {}

  std::size_t number_below(std::size_t n) { return random_() % n; }
  const at::Tensor& pick() { return values_[number_below(values_.size())]; }
  // One that the program may change in place: it made it itself.
  at::Tensor pick_own() { return values_[made_ + number_below(values_.size() - made_)]; }

  void grow(int steps, const std::vector<Operation>& operations) {
    for (int i = 0; i < steps; ++i) {
      at::Tensor value = operations[number_below(operations.size())](*this);
      if (value.defined()) values_.push_back(std::move(value));
    }
  }

  const at::Tensor& last() const { return values_.back(); }
  const at::Tensor& operator[](std::size_t n) const { return values_[n]; }

 private:
  std::vector<at::Tensor> values_;
  std::size_t made_;  // the first that was not given
  std::mt19937_64 random_;
};

}  // namespace nimble
