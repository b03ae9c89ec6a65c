#include "nimble/backend/executable.h"

namespace nimble {

Backend& backend_for(c10::Device device) {
  if (device.is_cpu()) return cpu_backend();
  if (device.is_cuda()) return cuda_backend();
  throw Error("[nimble::compile] tensors on " + device.str() + ": only CPU and CUDA devices are supported");
}

}  // namespace nimble
