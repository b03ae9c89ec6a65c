#include <cuda_runtime.h>

namespace nimble::testing {

__global__ void wait_until(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

void launch_delay(cudaStream_t stream, long long cycles) { wait_until<<<1, 1, 0, stream>>>(cycles); }

}  // namespace nimble::testing
