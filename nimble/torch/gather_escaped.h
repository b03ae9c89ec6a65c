#pragma once

#include "nimble/torch/program.h"

namespace nimble {

// Moves what a program leaves outside (gradients, mostly) into one piece of GPU memory, values and all; the
// tensors stay the ones they are. PyTorch made each wherever there was room between the activations of the
// recorded run. Those are gone, and what a replay needs instead is one large piece: it fits into none of the
// gaps.
void gather_escaped(Program& program);

}  // namespace nimble
