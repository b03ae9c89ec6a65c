#pragma once

#include <ATen/Context.h>

namespace nimble {

// Whether PyTorch may round float32 to TF32 on a GPU in operators of this kind. Asked by kind: without one it
// answers with an error as soon as somebody has used its newer switches
// (torch.backends.cuda.matmul.fp32_precision).
inline bool allows_tf32(at::Float32Op kind) {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, kind) == at::Float32Precision::TF32;
}

}  // namespace nimble
