#pragma once

#include <functional>
#include <string>

#include "nimble/engine/entry.h"
#include "nimble/engine/options.h"

namespace nimble {

struct CheckResult {
  Tensors outputs;            // of the eager run
  std::string failure;        // how the replay differs from it, empty if it does not
  bool refused = false;       // the failure: the backend cannot replay this program at all
  bool other_values = false;  // the failure: what it computed is not, or not nearly, what eager did
};

// Runs one call both ways, on the same state, and leaves the state as the eager run does, or as it was if
// `undo`. Plans and chooses the schedules of the entry's parts first where that was not done yet; `publish`
// puts what was chosen in its place.
//
// A program in parts is checked part by part within the eager run, so that nothing the host does in between
// is done twice.
using Publish = std::function<void(Part& part, Rewriting rewriting, Choice choice)>;
CheckResult check_against_eager(Entry& entry, const Tensors& inputs, Host& host,
                                const CompileOptions& options, bool undo, const Publish& publish);

}  // namespace nimble
