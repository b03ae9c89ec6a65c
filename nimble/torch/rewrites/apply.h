#pragma once

#include <span>
#include <string>
#include <vector>

#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// What became of one rewrite.
struct RewriteReport {
  std::string name;
  std::vector<std::string> sites;  // where it fired
  std::size_t tasks_before = 0, tasks_after = 0;
  double milliseconds = 0;   // for everything about it: compiling kernels, measuring, recording anew
  Nanoseconds gained = 0;    // of a replay, as far as its sites were measured, each alone
  std::string dropped = {};  // why its result was not kept, empty if it was
};

struct AppliedRewrites {
  Program program;
  std::vector<RewriteReport> reports;  // of those that fired
  bool exact = true;                   // no bit of any result changed
};

// Applies one rewrite after the other, checks each result and records it anew on `inputs`: where that can
// show something new, and at the end. Those that are not for the program's device, or not for training where
// the program trains, are left out; one whose result is wrong is dropped, and the report says why. If what
// comes of all of them cannot be recorded, all are. A program that trains is never run: its new tasks are,
// alone.
AppliedRewrites apply_rewrites(const Program& program, std::span<const Rewrite* const> rewrites,
                               std::span<const at::Tensor> inputs, const RewriteContext& context);

// Whether a program is part of training as far as rewrites are concerned: it changes tensors outside.
bool writes_outside(const Program& program);

}  // namespace nimble
