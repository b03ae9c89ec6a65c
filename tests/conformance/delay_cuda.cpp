#include <c10/cuda/CUDAStream.h>

#include "tests/conformance/delay.h"

namespace nimble::testing {

void launch_delay(cudaStream_t stream, long long cycles);  // delay.cu: torch's headers are too much for nvcc

void delay_current_stream(int microseconds) {
  constexpr long long kCyclesPerMicrosecond = 1500;
  launch_delay(c10::cuda::getCurrentCUDAStream(), microseconds * kCyclesPerMicrosecond);
}

}  // namespace nimble::testing
