#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// Operators, numbers and shapes: all that their time and their kernels depend on, but not which buffers.
std::string describe_tasks(std::span<const Task> tasks);

// The same with memory of nobody's, so that tasks can be measured that change tensors outside.
std::vector<Buffer> without_outside(std::span<const Buffer> buffers);

// Chooses between ways to compute the same by running each alone on this machine. Ways that look alike (the
// same operators on the same shapes) are measured once.
class Chooser {
 public:
  explicit Chooser(const RewriteContext& context) : context_(context) {}

  // The number of the fastest; the first unless another takes less than `clearly` of its time, and where
  // nothing is measured or the time for it is up. A way that fails is not taken.
  std::size_t faster_of(std::span<const Buffer> buffers, std::span<const std::vector<Task>> candidates,
                        double clearly = 0.97);

  // Whether `together` takes less than `clearly` of the time of `apart`, whose tasks run side by side. Not
  // where nothing is measured, the time for it is up, or one of the two fails.
  bool faster_than_side_by_side(std::span<const Buffer> buffers, const std::vector<Task>& together,
                                const std::vector<Task>& apart, double clearly = 0.97);

  // A way was taken in the place of another: of two that were measured, one after the other or side by side,
  // the difference counts as gained.
  void took(const std::vector<Task>& way, const std::vector<Task>& instead_of);
  Nanoseconds gained() const { return gained_; }

 private:
  enum class How { kOneAfterTheOther, kSideBySide };
  bool measures() const { return context_.measure && spent_seconds_ <= context_.measure_seconds; }
  Nanoseconds time(std::span<const Buffer> buffers, const std::vector<Task>& tasks,
                   How how = How::kOneAfterTheOther);
  std::optional<Nanoseconds> measured(const std::vector<Task>& tasks, How how) const;

  const RewriteContext& context_;
  std::unordered_map<std::string, Nanoseconds> known_;
  double spent_seconds_ = 0;
  Nanoseconds gained_ = 0;
};

}  // namespace nimble
