#pragma once

#include "nimble/torch/program.h"

namespace nimble {

// Convolutions that are told what others read from the settings. Any task that is no convolution stays as it
// is.

// By the kernel that cuDNN's heuristics name first, whatever torch.backends.cudnn.benchmark says: its search
// takes a third of a second for one shape at times, too long for a way that is only looked at.
Task unsearched(Task task);

// Whether it is a convolution in float32 that a kernel may round to TF32.
bool may_round_to_tf32(const Task& task);

// By kernels that do not, whatever torch.backends.cudnn.allow_tf32 says.
Task without_tf32(Task task);

}  // namespace nimble
