#include "nimble/backend/executable.h"

namespace nimble {

bool cuda_available() { return false; }

Backend& cuda_backend() {
  throw Error(
      "[nimble::compile] this build of Nimble has no CUDA backend: it was built without nvcc, with CUDA=0, "
      "or against a PyTorch without CUDA. Build it again where nvcc is on the PATH, or move the model and "
      "its "
      "inputs to the CPU");
}

}  // namespace nimble
