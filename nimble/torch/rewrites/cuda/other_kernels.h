#pragma once

#include <string>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble {

// The same task done by other kernels: operator, tensors and all else are the task's, only the number of the
// way to do it is another. Of ours none rounds more than the task does; what cuDNN and cuBLASLt propose
// rounds as PyTorch's settings allow. Whether a kernel exists and allocates what the task allocates, only
// running it can tell. None for a task that has no choice.
std::vector<Task> other_kernels(const Task& task);

// Which of its kernels the task takes: "1", "0 by TF32". Empty for a task that has no choice.
std::string kernel_name(const Task& task);

}  // namespace nimble
