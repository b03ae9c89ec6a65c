#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nimble/core/task_graph.h"
#include "nimble/torch/program.h"

namespace nimble {

// Times that were measured before, by a description of the tasks.
class KnownTimes {
 public:
  virtual ~KnownTimes() = default;
  virtual std::optional<Nanoseconds> find(const std::string& tasks) const = 0;
  virtual void add(const std::string& tasks, Nanoseconds time) = 0;
};

// What a rewrite may ask while it works.
struct RewriteContext {
  c10::Device device = c10::kCPU;
  // Convolutions in float32 may not be rounded to TF32, although the settings allow it: eager's own kernels
  // did not.
  bool precise = false;
  // The program writes tensors outside, or belongs to a backward pass: see Rewrite::for_training.
  bool trains = false;
  // It may round otherwise than eager even so: the user said how far its results may be.
  bool tolerant = false;
  // Runs the program behind each rewrite, even if all that would show is known already (see known_forms.h):
  // the same comes of it, later.
  bool record_each = false;
  // How long these tasks take on this machine, run alone, one after the other; what they read from other
  // tasks is made up. Empty where nothing shall be measured: see faster_of.
  using Measure = std::function<Nanoseconds(std::span<const Buffer> buffers, std::span<const Task> tasks)>;
  Measure measure = {};
  // The same for tasks that wait for nothing of each other, each on a stream of its own.
  Measure measure_side_by_side = {};
  // Set in a run that measures nothing and is thrown away: hears of every way that would be measured, so that
  // their kernels can be compiled beforehand, many at once.
  std::function<void(std::span<const Task> tasks)> consider = {};
  bool chooses() const { return measure || consider; }

  double measure_seconds = std::numeric_limits<double>::infinity();  // how long one rewrite may go on
  std::shared_ptr<KnownTimes> known = nullptr;  // where to look before measuring, and to add to afterwards
};

struct Rewritten {
  Program program;
  std::vector<std::string> sites =
      {};                  // one line for each place where it fired, for explain(); none: it did not
  Nanoseconds gained = 0;  // by all of them, as far as they were measured, each alone
};

// A function from program to program that computes the same, faster. The tasks of the program that it returns
// need the right operators, arguments and refs; what only running them can tell (strides of results, and at
// the end allocations) is recorded anew afterwards, so that each rewrite sees what the one before it really
// did.
struct Rewrite {
  std::string_view name;
  std::string_view summary;
  bool on_cpu = true, on_cuda = true;
  // Also holds for programs that train: it changes no bit of anything there, unless the context is tolerant,
  // and what it makes needs not be recorded anew, since a step of training is not done once more to look at
  // it. So its tasks allocate their results and nothing else, and lay them out as their refs say.
  bool for_training = false;
  bool exact = false;   // changes no bit of any result
  bool always = false;  // prepares for the others or finishes their work: runs whenever one of them does
  Rewritten (*apply)(Program program, const RewriteContext& context) = nullptr;

  bool is_for(c10::Device device) const { return device.is_cuda() ? on_cuda : on_cpu; }
};

}  // namespace nimble
