#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/engine/options.h"
#include "nimble/torch/derivation.h"
#include "nimble/torch/rewrites/apply.h"

namespace nimble {

// What was made of a recorded program before it was planned.
struct Rewriting {
  std::shared_ptr<const Program> program;  // the recorded one where no rewrite fired
  std::vector<RewriteReport> reports = {};
  bool exact = true;  // results stay bit-equal to those of the recorded program
  double milliseconds = 0;
  // Of one replay on one stream, before and after; 0 where nothing was measured.
  double milliseconds_recorded = 0, milliseconds_rewritten = 0;
  std::optional<Versions> weights = {};  // of tensors outside that something was derived from

  // Derives folded and packed weights again if one that they come from has changed since.
  void follow_weights(Executable& executable);
};

// Applies the rewrites that `options` ask for. `trains`: the program changes tensors outside or belongs to a
// backward pass, so that only rewrites which hold for training are applied, and it is not run for that. Any
// other is replayed on `inputs`, as recorded and rewritten, and the recorded one stays where it measures
// faster; whoever calls restores what that changes outside. Where images were laid out otherwise and that
// brought little, the layout that they had is tried as well.
// `outside` are tensors known to live outside, among which are the counters by which batch norms tell that
// their statistics changed. `precise`: see RewriteContext.
Rewriting rewrite(const std::shared_ptr<const Program>& program, std::span<const at::Tensor> inputs,
                  const CompileOptions& options, bool trains, bool precise,
                  std::span<const at::Tensor> outside);

// Of one replay on one stream, in milliseconds.
struct RewritingTimes {
  double recorded = 0, rewritten = 0;
};
// Notes the times, and goes back to the recorded program if the rewritten one is clearly slower.
void keep_the_faster(Rewriting& rewriting, const std::shared_ptr<const Program>& recorded,
                     const RewritingTimes& times);

// Whether images were laid out otherwise, although the program takes hardly less time for all that was done.
bool may_prefer_recorded_layout(const Rewriting& rewriting);
// The faster of two rewritings of a program, of which only the first lays out images otherwise.
Rewriting faster_layout(Rewriting changed, Rewriting as_recorded);

// Whether convolutions may have been rounded to TF32, and would not be by a precise rewriting of `recorded`.
bool could_be_more_precise(const Rewriting& rewriting, const Program& recorded);

}  // namespace nimble
