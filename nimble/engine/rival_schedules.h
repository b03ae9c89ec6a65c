#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/engine/candidates.h"
#include "nimble/engine/effects.h"
#include "nimble/engine/known_replays.h"
#include "nimble/torch/outside_state.h"

namespace nimble {

// One way to run a program that was measured.
struct Tried {
  std::size_t streams = 0;
  std::size_t threads_per_stream = 0;  // CPU only
  double milliseconds = 0;             // median; 0 where it was not timed
  std::string rejected = {};           // why it was not a candidate, empty if it was
};

// Schedules of one program, one for each limit to its streams, of which the fastest is wanted. The first, on
// the fewest streams, is bound at once and always a candidate; what the others leave must be its bits. What
// this is made of must outlive it.
class RivalSchedules {
 public:
  RivalSchedules(std::vector<StreamLimit> limits, const std::shared_ptr<const Program>& program,
                 std::span<const at::Tensor> inputs, const OutsideState& before, CandidateMaker& maker);

  std::size_t count() const { return limits_.size(); }

  // Takes times from an earlier process and binds the one that was fastest there. False if they are not all
  // known, or if that one is no candidate here.
  bool remember(const KnownReplays& known);

  // Binds all and times them in turn. What binding took is part of the seconds that may be spent, but the
  // timing itself gets half.
  void measure(double seconds, KnownReplays& known);

  std::vector<Tried> tried() const;

  Candidate take_fastest();
  std::vector<Candidate>& others() { return candidates_; }

 private:
  bool is_candidate(std::size_t i) const;
  std::vector<double> medians() const;  // 0 for those that are no candidate or were not timed
  void look_at_first();
  void bind(const std::vector<std::size_t>& which);
  std::string why_not(Candidate& candidate);
  Effects effects_of(Executable& executable) const;

  std::vector<StreamLimit> limits_;
  const std::shared_ptr<const Program>& program_;
  std::span<const at::Tensor> inputs_;
  const OutsideState& before_;
  CandidateMaker& maker_;
  std::vector<Candidate> candidates_;  // by limit
  std::optional<Effects> expected_;    // what the first leaves
  std::optional<Spread> spread_;
};

}  // namespace nimble
