#pragma once

#include <span>

#include "nimble/torch/program.h"

namespace nimble {

// Runs a rewritten program once on `inputs` and records what it really did: allocations, scratch memory, the
// layouts that operators gave to their results, with copies where somebody needs another one. What the run
// changes outside is put back. Throws what an operator throws, and RecordError where it cannot be replayed.
Program record_anew(const Program& program, std::span<const at::Tensor> inputs);

// The same for a program that will be rewritten further: convolutions only lay out their results, without
// computing them, since cuDNN may search for seconds for kernels that nobody will run. Values and scratch
// memory are not the real ones.
Program record_forms(const Program& program, std::span<const at::Tensor> inputs);

}  // namespace nimble
