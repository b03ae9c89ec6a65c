#pragma once

namespace nimble::testing {

// Keeps the current CUDA stream busy for about so long. Does nothing in a build without CUDA.
void delay_current_stream(int microseconds);

}  // namespace nimble::testing
