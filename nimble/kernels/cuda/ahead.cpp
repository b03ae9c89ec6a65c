#include "nimble/kernels/ahead.h"

#include <c10/cuda/CUDAGuard.h>

#include "nimble/kernels/cuda/launch.h"

namespace nimble::kernels {

Compiling compile_ahead(std::span<const ComingCall> calls, c10::Device device) {
  if (!device.is_cuda()) return nullptr;
  std::vector<KernelSource> needed;
  {
    KernelCollector collector;
    for (const ComingCall& call : calls) {
      torch::jit::Stack stack = call.arguments;
      try {
        call.op.callBoxed(&stack);
      } catch (const std::exception&) {  // what is wrong with it shows when it really runs
      }
    }
    needed = std::move(collector.kernels);
  }
  const c10::cuda::CUDAGuard guard(device);
  return load_ahead(needed);
}

}  // namespace nimble::kernels
