#pragma once

#include <string>
#include <unordered_map>

#include "nimble/torch/program.h"

namespace nimble {

// Tells whether a program that was rewritten has to be run to see how its tasks lay out their results. If all
// of them make just what the program says, a recording would show nothing that the next rewrite looks at. A
// task that looks like one before the rewrite lays out as that did; any other is tried alone, one of a kind.
class KnownForms {
 public:
  // Whether `rewritten` is so, given that `before`, which it was made from, is.
  bool are_as_said(const Program& rewritten, const Program& before);

 private:
  bool is_as_said(const Task& task, const Program& program);

  std::unordered_map<std::string, bool> tried_;  // by kind of task, with what it says of its results
};

}  // namespace nimble
